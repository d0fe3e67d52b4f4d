"""`trax audit …`: list operators' changes, and undo some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from trax.bounds import LONGEST_PAGE
from trax.cli.operators import (
    After,
    AsJson,
    Before,
    CountOnly,
    DatabaseUrl,
    Id,
    Limit,
    Reason,
    Since,
    Until,
    moment_of,
    operate,
    show_records,
)
from trax.cli.output import say, show_json_line, show_one

if TYPE_CHECKING:
    from trax.app.app import Trax

LISTED: Final = ("id", "at", "actor", "via", "action", "ids", "count", "reason", "undone_by")

audit = App(name="audit", help="List operators' changes, and undo them.")


@audit.command(name="list")
def list_(
    *,
    actor: Annotated[str | None, Parameter(help="Who made the change.")] = None,
    action: Annotated[str | None, Parameter(help="An action, such as groups.update.")] = None,
    noun: Annotated[str | None, Parameter(help="A kind of record, such as group.")] = None,
    target: Annotated[str | None, Parameter(help="An id or name that was changed.")] = None,
    since: Since = None,
    until: Until = None,
    before: Before = None,
    after: After = None,
    limit: Limit = 50,
    count: CountOnly = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List audit entries, newest first."""
    show_records(
        "audit",
        LISTED,
        database_url,
        count=count,
        as_json=as_json,
        before=before,
        after=after,
        limit=limit,
        actor=actor,
        action=action,
        noun=noun,
        target=target,
        since=since,
        until=until,
    )


@audit.command
def show(audit_id: Id, /, *, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Show one audit entry: the values before and after."""
    show_one(operate(database_url, lambda app: app.audit.get(audit_id)), as_json=as_json)


@audit.command
def export(
    *,
    since: Since = None,
    until: Until = None,
    after: After = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Print all audit entries, oldest first, one JSON document per line.

    To continue an export, pass the id of its last line as --after.
    """

    async def write(app: Trax) -> None:
        start, end = await moment_of(app, since), await moment_of(app, until)
        last = after or 0
        while page := await app.audit.list(after=last, limit=LONGEST_PAGE, since=start, until=end):
            for entry in reversed(page):
                show_json_line(entry)
            last = page[0].id

    operate(database_url, write)


@audit.command
def undo(
    audit_id: Id,
    /,
    *,
    force: Annotated[bool, Parameter(negative=(), help="Undo even if it was changed again since.")] = False,
    reason: Reason = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Restore the values that a change of settings or of a group replaced."""
    entry = operate(database_url, lambda app: app.audit.undo(audit_id, force=force), reason=reason)
    say(f"undone: {entry.action} of {', '.join(entry.ids)}, as audit entry {entry.id}")
