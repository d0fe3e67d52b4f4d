"""Why something is not running, asked by whatever name one has for it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.bounds import LARGEST_ID, LONGEST_NAME
from trax.records import Reason
from trax.web.api.bodies import JsonRoute
from trax.web.api.writing import Writes
from trax.web.problems import FieldProblem, Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/why", tags=["why"], route_class=JsonRoute)

reasons = Writes(list[Reason])


@router.get("", response_model=list[Reason])
async def why(
    room: TheRoom,
    manifest: Annotated[str | None, Query(min_length=1, max_length=LONGEST_NAME)] = None,
    entry: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None,
) -> Response:
    """What keeps a manifest or an entry of the queue from running; what holds it now comes first."""
    what = entry if manifest is None else manifest
    if what is None or (manifest is not None and entry is not None):
        fields = (FieldProblem("query.manifest", "or"), FieldProblem("query.entry", "one of the two"))
        raise Refusal(problem(422, "ask about either a manifest or an entry", fields=fields))
    return reasons(await room.app.why(what))
