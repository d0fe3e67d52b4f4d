"""`/logs`: log lines of all executions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.records import LogLevel, LogLine
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import After, ApiPage, Before, Limit, RowId, page_of
from trax.web.api.writing import JsonWriter
from trax.web.room import InjectedContext

logs_router = APIRouter(prefix="/logs", tags=["logs"], route_class=JsonRoute)

logs_response = JsonWriter(ApiPage[LogLine])


@logs_router.get("", response_model=ApiPage[LogLine])
async def list_log_lines(
    context: InjectedContext,
    level: Annotated[LogLevel | None, Query(description="This level or higher.")] = None,
    text: Annotated[str | None, Query(max_length=200, description="Part of the message.")] = None,
    metadata_id: Annotated[RowId | None, Query()] = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 50,
) -> Response:
    """List log lines, newest first. A text search reads a bounded number of lines; see `complete`."""
    found = await context.app.logs.page(
        level=level, text=text, metadata_id=metadata_id, before=after, after=before, limit=limit
    )
    return logs_response(page_of(found, found.items))
