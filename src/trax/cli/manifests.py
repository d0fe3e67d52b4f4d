"""`trax manifests …`: which train runs when."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operating import (
    After,
    AsJson,
    DatabaseUrl,
    Delay,
    KindOfSchedule,
    Limit,
    Reason,
    Yes,
    confirm,
    operate,
)
from trax.cli.showing import say, show_list, show_one

LISTED: Final = ("external_id", "train", "group", "schedule", "enabled", "failure_count", "next_due_at")

manifests = App(name="manifests", help="Which train runs when.")


@manifests.command(name="list")
def list_(
    *,
    group: str | None = None,
    train: str | None = None,
    enabled: Annotated[
        bool | None, Parameter(negative="--disabled", help="Only those, or the others.")
    ] = None,
    schedule_type: KindOfSchedule = None,
    retired: Annotated[
        bool, Parameter(negative=(), help="Only retired ones, which are left out otherwise.")
    ] = False,
    after: After = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List manifests in the order of their ids."""
    found = operate(
        database_url,
        lambda app: app.manifests.list(
            group=group,
            train=train,
            enabled=enabled,
            schedule_type=schedule_type,
            retired=retired,
            after=after,
            limit=limit,
        ),
    )
    show_list(found, (*LISTED[:-1], "retired_at") if retired else LISTED, as_json=as_json)


@manifests.command
def show(external_id: str, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one manifest."""
    show_one(operate(database_url, lambda app: app.manifests.get(external_id)), as_json=as_json)


@manifests.command
def enable(external_id: str, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Let it run again when it is due."""
    operate(database_url, lambda app: app.manifests.enable(external_id), reason=reason)
    say(f"{external_id} is enabled")


@manifests.command
def disable(external_id: str, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Let it not run any more; what is queued already stays queued."""
    operate(database_url, lambda app: app.manifests.disable(external_id), reason=reason)
    say(f"{external_id} is disabled")


@manifests.command
def trigger(
    external_id: str,
    /,
    *,
    delay: Delay = None,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run it once more, whatever its schedule says."""
    later = None if delay is None else timedelta(seconds=delay)
    entry = operate(database_url, lambda app: app.manifests.trigger(external_id, delay=later), reason=reason)
    if as_json:
        show_one(entry, as_json=True)
    else:
        say(f"{external_id} is queued as entry {entry.id}")


@manifests.command
def cancel(external_id: str, /, *, reason: Reason = None, database_url: DatabaseUrl = None) -> None:
    """Ask its runs in progress to stop."""
    count = operate(database_url, lambda app: app.manifests.cancel(external_id), reason=reason)
    say(f"asked to stop: {count}")


@manifests.command
def delete(
    external_id: str, /, *, yes: Yes = False, reason: Reason = None, database_url: DatabaseUrl = None
) -> int:
    """Retire it: it stops firing, what is queued is withdrawn, its history and dead letters stay."""
    what = f"Retire {external_id!r} and withdraw its queued entries"
    if not confirm(what, yes=yes, command=("manifests", "delete")):
        return 1
    operate(database_url, lambda app: app.manifests.delete(external_id), reason=reason)
    say(f"{external_id} is retired")
    return 0
