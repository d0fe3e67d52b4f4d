"""`/why`: reasons why a manifest or an entry is not running."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.bounds import LARGEST_ID, LONGEST_NAME
from trax.records import Reason
from trax.web.api.bodies import JsonRoute
from trax.web.api.writing import JsonWriter
from trax.web.problems import FieldProblem, Refusal, problem
from trax.web.room import InjectedContext

why_router = APIRouter(prefix="/why", tags=["why"], route_class=JsonRoute)

reasons_response = JsonWriter(list[Reason])


@why_router.get("", response_model=list[Reason])
async def why(
    context: InjectedContext,
    manifest: Annotated[str | None, Query(min_length=1, max_length=LONGEST_NAME)] = None,
    entry: Annotated[int | None, Query(ge=0, le=LARGEST_ID)] = None,
) -> Response:
    """Reasons why a manifest or an entry is not running, the current one first."""
    target = entry if manifest is None else manifest
    if target is None or (manifest is not None and entry is not None):
        fields = tuple(
            FieldProblem(f"query.{name}", "give exactly one of manifest and entry")
            for name in ("manifest", "entry")
        )
        raise Refusal(problem(422, "give either a manifest or an entry", fields=fields))
    return reasons_response(await context.app.why(target))
