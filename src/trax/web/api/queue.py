"""What waits at the gate, and what was let through it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from trax.records import Origin, QueueStatus, Reason, WorkQueueEntry
from trax.web.api.bodies import Ids, JsonRoute
from trax.web.api.paging import AskedById, NameQuery, Page, PathId, page_asked
from trax.web.api.writing import Writes, shown
from trax.web.problems import Refusal, problem
from trax.web.room import TheRoom

router = APIRouter(prefix="/queue", tags=["queue"], route_class=JsonRoute)


class EntriesAsked(AskedById):
    """Which entries."""

    status: QueueStatus | None = None
    train: NameQuery = None
    manifest: NameQuery = None
    group: NameQuery = None
    origin: Origin | None = None


class CancelledEntries(BaseModel):
    """How many entries were withdrawn, and how many of those named were not queued any more."""

    cancelled: int
    skipped: int


one, some = Writes(WorkQueueEntry), Writes(Page[WorkQueueEntry])
cancelled, reasons = Writes(CancelledEntries), Writes(list[Reason])


@router.get("", response_model=Page[WorkQueueEntry])
async def list_entries(room: TheRoom, asked: Annotated[EntriesAsked, Query()]) -> Response:
    """Newest first."""
    return some(await page_asked(room.app.work_queue, asked, room.mask))


@router.get("/{entry_id:row_id}", response_model=WorkQueueEntry)
async def get_entry(room: TheRoom, entry_id: PathId) -> Response:
    return one(shown(await room.app.work_queue.get(entry_id), room.mask))


@router.get("/{entry_id:row_id}/why", response_model=list[Reason])
async def why_entry(room: TheRoom, entry_id: PathId) -> Response:
    """What keeps it from running; what holds it now comes first."""
    return reasons(await room.app.why(entry_id))


@router.post("/cancel", response_model=CancelledEntries)
async def cancel_entries(room: TheRoom, body: Ids) -> Response:
    """Withdraw those that are still queued. What has passed the gate is a run: cancel that."""
    count = await room.app.work_queue.cancel(body.ids)
    return cancelled(CancelledEntries(cancelled=count, skipped=len(set(body.ids)) - count))


@router.post("/{entry_id:row_id}/cancel", response_model=WorkQueueEntry)
async def cancel_entry(room: TheRoom, entry_id: PathId) -> Response:
    """Withdraw one that is still queued; 409 if it is not."""
    count = await room.app.work_queue.cancel([entry_id])
    found = await room.app.work_queue.get(entry_id)
    if not count:
        raise Refusal(problem(409, f"entry {entry_id} is {found.status} already"))
    return one(shown(found, room.mask))
