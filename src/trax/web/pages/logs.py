"""Logs: what runs have logged, across all of them."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.records.states import LogLevel
from trax.web.pages.listing import ROWS, newest_first, number, one_of, word
from trax.web.pages.rendering import show
from trax.web.room import room_of

router = APIRouter()
LONGEST_TEXT: Final = 200


@router.get("/logs")
async def logs(request: Request) -> Response:
    text, execution = word(request, "text"), number(request, "execution")
    level = one_of(request, "level", LogLevel)
    found = await room_of(request).app.logs.page(
        level=level,
        text=text[:LONGEST_TEXT] if text else None,
        metadata_id=execution,
        before=number(request, "before"),
        after=number(request, "after"),
        limit=ROWS,
        brief=True,
    )
    return show(
        request,
        "logs.html",
        here="logs",
        listing=newest_first(request, found),
        query={"text": text, "level": level, "execution": execution},
        is_filtered=bool(text or level or execution),
        levels=list(LogLevel),
    )
