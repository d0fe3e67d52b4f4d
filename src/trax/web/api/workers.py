"""`/workers`: list workers with their current jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.bounds import LARGEST_ID
from trax.records.worker_view import WorkerView
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import LONGEST_PAGE, Limit, PathId
from trax.web.api.writing import JsonWriter
from trax.web.room import InjectedContext

workers_router = APIRouter(prefix="/workers", tags=["workers"], route_class=JsonRoute)

AfterWorker = Annotated[
    int | None, Query(ge=0, le=LARGEST_ID, description="Next page: id of the last worker.")
]

worker_response, workers_response = JsonWriter(WorkerView), JsonWriter(list[WorkerView])


@workers_router.get("", response_model=list[WorkerView])
async def list_workers(
    context: InjectedContext, after: AfterWorker = None, limit: Limit = LONGEST_PAGE
) -> Response:
    """List workers with their work filter and first jobs. `is_lost`: it missed its heartbeat."""
    return workers_response(await context.app.workers.list(after=after, limit=limit))


@workers_router.get("/{worker_id:row_id}", response_model=WorkerView)
async def get_worker(context: InjectedContext, worker_id: PathId) -> Response:
    """Get one worker."""
    return worker_response(await context.app.workers.get(worker_id))
