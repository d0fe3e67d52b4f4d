"""Who runs jobs, and what each is at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from trax.bounds import LARGEST_ID
from trax.records.worker_view import WorkerView
from trax.web.api.bodies import JsonRoute
from trax.web.api.paging import LONGEST_PAGE, Limit, PathId
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/workers", tags=["workers"], route_class=JsonRoute)

AfterWorker = Annotated[int | None, Query(ge=0, le=LARGEST_ID, description="Read on: the last one's id.")]

one, some = Writes(WorkerView), Writes(list[WorkerView])


@router.get("", response_model=list[WorkerView])
async def list_workers(room: TheRoom, after: AfterWorker = None, limit: Limit = LONGEST_PAGE) -> Response:
    """Each with what it takes and the first of its jobs; `is_lost` are those that have not beaten lately."""
    return some(await room.app.workers.list(after=after, limit=limit))


@router.get("/{worker_id:row_id}", response_model=WorkerView)
async def get_worker(room: TheRoom, worker_id: PathId) -> Response:
    return one(await room.app.workers.get(worker_id))
