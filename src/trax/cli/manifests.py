"""`trax manifests …`: list and manage manifests."""

from __future__ import annotations

from cyclopts import App

from trax.cli.lists import add_list
from trax.cli.operators import (
    AsJson,
    DatabaseUrl,
    Delay,
    ExternalId,
    Reason,
    Yes,
    confirm,
    operate,
    report_cancelled,
)
from trax.cli.output import say, show_one
from trax.records.nouns import MANIFESTS

manifests = App(name="manifests", help="List and manage manifests: which train runs when.")


add_list(manifests, MANIFESTS)


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
