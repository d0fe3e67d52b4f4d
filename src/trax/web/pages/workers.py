"""Worker page: the processes that run trains, and their current jobs."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.host.status import status
from trax.records.worker import declaration_conflicts
from trax.web.pages.listing import from_start, query_number
from trax.web.pages.rendering import show
from trax.web.room import context_of

router = APIRouter()
SHOWN_WORKERS: Final = 25
SHOWN_JOBS: Final = 5


@router.get("/workers")
async def workers(request: Request) -> Response:
    rows = await context_of(request).app.workers.list(
        jobs=SHOWN_JOBS, after=query_number(request, "after"), limit=SHOWN_WORKERS + 1
    )
    listing = from_start(request, rows, limit=SHOWN_WORKERS, key=lambda view: view.worker.id)
    servers = (await status(context_of(request).app.parts)).servers
    wrong = declaration_conflicts(servers)
    return show(request, "workers.html", here="workers", listing=listing, disagreements=wrong)
