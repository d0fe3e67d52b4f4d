"""Who runs jobs, and what each is at."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from trax.records.worker_view import WorkerView
from trax.web.api.paging import PathId
from trax.web.api.writing import Writes
from trax.web.room import TheRoom

router = APIRouter(prefix="/workers", tags=["workers"])

one, some = Writes(WorkerView), Writes(list[WorkerView])


@router.get("", response_model=list[WorkerView])
async def list_workers(room: TheRoom) -> Response:
    """Every worker, each with the first of its jobs; `is_lost` are those that have not beaten lately."""
    return some(await room.app.workers.list())


@router.get("/{worker_id}", response_model=WorkerView)
async def get_worker(room: TheRoom, worker_id: PathId) -> Response:
    return one(await room.app.workers.get(worker_id))
