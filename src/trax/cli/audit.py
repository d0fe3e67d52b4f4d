"""`trax audit …`: list operators' changes, and undo some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from trax.bounds import LONGEST_PAGE
from trax.cli.lists import Since, Until, add_list
from trax.cli.operators import (
    After,
    AsJson,
    DatabaseUrl,
    Id,
    Reason,
    moment_of,
    operate,
)
from trax.cli.output import say, show_json_line, show_one
from trax.records.nouns import AUDIT

if TYPE_CHECKING:
    from trax.app.app import Trax

audit = App(name="audit", help="List operators' changes, and undo them.")


add_list(audit, AUDIT)


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
