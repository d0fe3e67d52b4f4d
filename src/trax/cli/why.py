"""`trax why`: explain why a manifest, entry or run is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from trax.cli.operating import AppOption, AsJson, DatabaseUrl, operate
from trax.cli.showing import say, show_json

if TYPE_CHECKING:
    from trax.host.app import Trax
    from trax.records import Reason

ID_HELP = "A manifest, entry or run: its external id or number; run:7 means run 7."
TargetId = Annotated[str, Parameter(name="ID", help=ID_HELP)]


def why(
    what: TargetId, /, *, app: AppOption = None, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Explain why a manifest, entry or run is not running; the reason that blocks it now comes first.

    Without --app it uses the settings, trains and routes that live servers publish.
    """

    async def explain(app: Trax) -> list[Reason]:
        app.parts.store.migrates = False
        return await app.why(what)

    reasons = operate(database_url, explain, app=app)
    if as_json:
        show_json({"id": what, "reasons": reasons})
        return
    for reason in reasons:
        say(reason.text)
