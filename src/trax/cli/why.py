"""`trax why`: what keeps a manifest or a queued entry from running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from trax.cli.operating import AsJson, CodeOf, DatabaseUrl, operate
from trax.cli.showing import say, show_json

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.records import Reason

WANTED = "A manifest, an entry or a run: its external id or number; run:7 for run 7."
Wanted = Annotated[str, Parameter(name="ID", help=WANTED)]


def why(
    what: Wanted, /, *, app: CodeOf = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Say why something is not running, what holds it now first.

    Without --app the settings, trains and routes that live servers publish count.
    """

    async def asked(app: Trax) -> list[Reason]:
        app.parts.store.migrates = False
        return await app.why(what)

    reasons = operate(database_url, asked, app=app)
    if as_json:
        show_json({"id": what, "reasons": reasons})
        return
    for reason in reasons:
        say(reason.text)
