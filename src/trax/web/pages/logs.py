"""Log page: log lines of all executions."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.records.states import LogLevel
from trax.web.pages.listing import ROWS, newest_first, query_choice, query_number, query_text
from trax.web.pages.rendering import show
from trax.web.room import context_of

router = APIRouter()
LONGEST_TEXT: Final = 200


@router.get("/logs")
async def logs(request: Request) -> Response:
    text, execution = query_text(request, "text"), query_number(request, "execution")
    level = query_choice(request, "level", LogLevel)
    lines = await context_of(request).app.logs.page(
        level=level,
        text=text[:LONGEST_TEXT] if text else None,
        metadata_id=execution,
        before=query_number(request, "before"),
        after=query_number(request, "after"),
        limit=ROWS,
        brief=True,
    )
    return show(
        request,
        "logs.html",
        here="logs",
        listing=newest_first(request, lines),
        query={"text": text, "level": level, "execution": execution},
        is_filtered=bool(text or level or execution),
        levels=list(LogLevel),
    )
