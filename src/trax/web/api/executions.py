"""The record of every attempt."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from trax.records import LogLine, Metadata, State, WorkQueueEntry
from trax.web.api.asking import asked_again
from trax.web.api.bodies import Ids, JsonRoute
from trax.web.api.paging import (
    After,
    AskedById,
    Limit,
    Moment,
    NameQuery,
    Page,
    PathId,
    RowId,
    page,
    page_asked,
)
from trax.web.api.writing import Writes, shown
from trax.web.problems import Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/executions", tags=["executions"], route_class=JsonRoute)


class RunsAsked(AskedById):
    """Which runs."""

    state: State | None = None
    train: NameQuery = None
    manifest: NameQuery = None
    group: NameQuery = None
    parent_id: RowId | None = None
    since: Moment | None = None
    until: Moment | None = None
    external_id: Annotated[str | None, Query(max_length=200, description="Or how it begins.")] = None
    admin: Annotated[bool, Query(description="With those of the administrative trains.")] = False


class CancelledRuns(BaseModel):
    """Which runs were told to stop, and how many of those named were over already."""

    cancelled: list[int]
    skipped: int


one, some = Writes(Metadata), Writes(Page[Metadata])
lines, entry, cancelled = Writes(Page[LogLine]), Writes(WorkQueueEntry), Writes(CancelledRuns)


@router.get("", response_model=Page[Metadata])
async def list_executions(room: TheRoom, asked: Annotated[RunsAsked, Query()]) -> Response:
    """Newest first. `since` and `until` are about when a run was made."""
    return some(await page_asked(room.app.executions, asked, room.mask))


@router.get("/{metadata_id:row_id}", response_model=Metadata)
async def get_execution(room: TheRoom, metadata_id: PathId) -> Response:
    return one(shown(await room.app.executions.get(metadata_id), room.mask))


@router.get("/{metadata_id:row_id}/logs", response_model=Page[LogLine])
async def list_logs(room: TheRoom, metadata_id: PathId, after: After = None, limit: Limit = 100) -> Response:
    """What the run logged, oldest first."""
    await room.app.executions.get(metadata_id)
    found = await room.app.executions.logs(metadata_id, after=after, limit=limit)
    return lines(page(found, limit))


@router.post("/cancel", response_model=CancelledRuns)
async def cancel_executions(room: TheRoom, body: Ids) -> Response:
    """Stop those that are not over. One in progress is asked to, and ends within a heartbeat."""
    stopped = await room.app.executions.cancel(body.ids)
    skipped = len(set(body.ids)) - len(stopped)
    return cancelled(CancelledRuns(cancelled=list(stopped), skipped=skipped))


@router.post("/{metadata_id:row_id}/cancel", response_model=Metadata)
async def cancel_execution(room: TheRoom, metadata_id: PathId) -> Response:
    """Stop one that is not over; 409 if it is."""
    stopped = await room.app.executions.cancel([metadata_id])
    found = await room.app.executions.get(metadata_id)
    if not stopped:
        raise Refusal(problem(409, f"execution {metadata_id} is {found.state} already"))
    return one(shown(found, room.mask))


@router.post("/{metadata_id:row_id}/rerun", response_model=WorkQueueEntry, status_code=201)
async def rerun_execution(room: TheRoom, metadata_id: PathId) -> Response:
    """Queue the same train with the same input once more; 409 if its input or its train is not there."""
    return entry(shown(await asked_again(room.app, metadata_id), room.mask), 201)
