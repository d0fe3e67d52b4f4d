"""Workers: the processes that run trains, and what each is at."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.host.status import status
from trax.records.worker import disagreements
from trax.web.pages.listing import number, onwards
from trax.web.pages.rendering import show
from trax.web.room import room_of

router = APIRouter()
SHOWN_WORKERS: Final = 25
SHOWN_JOBS: Final = 5


@router.get("/workers")
async def workers(request: Request) -> Response:
    found = await room_of(request).app.workers.list(
        jobs=SHOWN_JOBS, after=number(request, "after"), limit=SHOWN_WORKERS + 1
    )
    listing = onwards(request, found, limit=SHOWN_WORKERS, key=lambda view: view.worker.id)
    servers = (await status(room_of(request).app.parts)).servers
    wrong = disagreements(servers)
    return show(request, "workers.html", here="workers", listing=listing, disagreements=wrong)
