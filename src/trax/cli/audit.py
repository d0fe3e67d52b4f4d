"""`trax audit …`: what operators did, and undoing some of it."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from trax.cli.operating import AsJson, Before, DatabaseUrl, Id, Limit, Reason, operate
from trax.cli.showing import say, show_list, show_one

LISTED: Final = ("id", "at", "actor", "via", "action", "ids", "count", "reason", "undone_by")

audit = App(name="audit", help="What operators did, and undoing it.")


@audit.command(name="list")
def list_(
    *,
    actor: str | None = None,
    action: Annotated[str | None, Parameter(help="Such as groups.update.")] = None,
    target: Annotated[str | None, Parameter(help="An id or a name that it was done to.")] = None,
    before: Before = None,
    limit: Limit = 50,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what was done, newest first."""
    found = operate(
        database_url,
        lambda app: app.audit.list(actor=actor, action=action, target=target, before=before, limit=limit),
    )
    show_list(found, LISTED, as_json=as_json)


@audit.command
def show(audit_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one entry: how it was before, and after."""
    show_one(operate(database_url, lambda app: app.audit.get(audit_id)), as_json=as_json)


@audit.command
def undo(
    audit_id: Id,
    /,
    *,
    force: Annotated[bool, Parameter(negative=(), help="Even if it was changed again since.")] = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Put back what a change of settings or of a group replaced."""
    entry = operate(database_url, lambda app: app.audit.undo(audit_id, force=force), reason=reason)
    say(f"undone: {entry.action} of {', '.join(entry.ids)}, as entry {entry.id}")
