"""Workers: the processes that run trains, and what each is at."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.web.pages.rendering import show
from trax.web.room import room_of

router = APIRouter()


@router.get("/workers")
async def workers(request: Request) -> Response:
    rows = await room_of(request).app.workers.list()
    return show(request, "workers.html", here="workers", rows=rows)
