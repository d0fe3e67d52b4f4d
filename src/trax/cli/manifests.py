"""`trax manifests …`: list and manage manifests."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operators import (
    AfterName,
    AsJson,
    BeforeName,
    CountOnly,
    DatabaseUrl,
    Delay,
    ExternalId,
    Limit,
    OfGroup,
    OfTrain,
    Reason,
    ScheduleKind,
    Yes,
    confirm,
    operate,
    report_cancelled,
    show_records,
)
from trax.cli.output import say, show_one

LISTED: Final = ("external_id", "train", "group", "schedule", "enabled", "failure_count", "next_due_at")

manifests = App(name="manifests", help="List and manage manifests: which train runs when.")


@manifests.command(name="list")
def list_(
    *,
    group: OfGroup = None,
    train: OfTrain = None,
    enabled: Annotated[
        bool | None, Parameter(negative="--disabled", help="Only enabled, or only disabled ones.")
    ] = None,
    schedule_type: ScheduleKind = None,
    depends_on: Annotated[str | None, Parameter(help="Only dependents of this manifest.")] = None,
    text: Annotated[str | None, Parameter(help="Only external ids that contain this text.")] = None,
    retired: Annotated[bool, Parameter(negative=(), help="List retired manifests instead.")] = False,
    before: BeforeName = None,
    after: AfterName = None,
    limit: Limit = 50,
    count: CountOnly = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List manifests, sorted by external id."""
    show_records(
        "manifests",
        (*LISTED[:-1], "retired_at") if retired else LISTED,
        database_url,
        count=count,
        as_json=as_json,
        before=before,
        after=after,
        limit=limit,
        group=group,
        train=train,
        enabled=enabled,
        schedule_type=schedule_type,
        depends_on=depends_on,
        text=text,
        retired=retired,
    )


@manifests.command
def show(external_id: ExternalId, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one manifest."""
    show_one(operate(database_url, lambda app: app.manifests.get(external_id)), as_json=as_json)


@manifests.command
def enable(external_id: ExternalId, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Enable a manifest: it runs again when it is due."""
    operate(database_url, lambda app: app.manifests.enable(external_id), reason=reason)
    say(f"manifest {external_id!r} is enabled")


@manifests.command
def disable(external_id: ExternalId, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Disable a manifest; entries already queued stay queued."""
    operate(database_url, lambda app: app.manifests.disable(external_id), reason=reason)
    say(f"manifest {external_id!r} is disabled")


@manifests.command
def trigger(
    external_id: ExternalId,
    /,
    *,
    delay: Delay = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a manifest once now, independent of its schedule."""
    entry = operate(database_url, lambda app: app.manifests.trigger(external_id, delay=delay), reason=reason)
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"manifest {external_id!r} is queued as entry {entry.id}")


@manifests.command
def cancel(
    external_id: ExternalId,
    /,
    *,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> int:
    """Request cancellation of the active runs of a manifest."""
    run_ids = operate(database_url, lambda app: app.manifests.cancel(external_id), reason=reason)
    return report_cancelled("cancellation requested", run_ids, None, as_json=as_json)


@manifests.command
def delete(
    external_id: ExternalId, /, *, yes: Yes = False, reason: Reason = None, database_url: DatabaseUrl = None
) -> int:
    """Retire a manifest: cancel its queued entries; keep its history and dead letters."""
    what = f"Retire manifest {external_id!r} and cancel its queued entries"
    if not confirm(what, yes=yes, command=("manifests", "delete")):
        return 1
    operate(database_url, lambda app: app.manifests.delete(external_id), reason=reason)
    say(f"manifest {external_id!r} is retired")
    return 0
