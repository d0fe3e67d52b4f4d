"""What runs logged, all of them together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.records import LogLevel, LogLine
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import After, Before, Limit, Page, RowId, page_of
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/logs", tags=["logs"], route_class=JsonRoute)

some = Writes(Page[LogLine])


@router.get("", response_model=Page[LogLine])
async def list_log_lines(
    room: TheRoom,
    level: Annotated[LogLevel | None, Query(description="Of this level, or louder.")] = None,
    text: Annotated[str | None, Query(max_length=200, description="Somewhere in the message.")] = None,
    metadata_id: Annotated[RowId | None, Query()] = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 50,
) -> Response:
    """Newest first. A search looks at a bounded number of lines, and says when that was not all."""
    found = await room.app.logs.page(
        level=level, text=text, metadata_id=metadata_id, before=after, after=before, limit=limit
    )
    return some(page_of(found, found.items))
