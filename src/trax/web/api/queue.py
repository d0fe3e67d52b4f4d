"""`/queue`: list and cancel entries of the work queue."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from trax.records import Reason, WorkQueueEntry
from trax.records.nouns import ENTRIES
from trax.web.api.bodies import CancelledIds, Ids, JsonRoute
from trax.web.api.paging import JsonWriter, PathId, add_list_route, mask_record
from trax.web.context import InjectedContext
from trax.web.problems import Refusal, problem

router = APIRouter(prefix="/queue", tags=["queue"], route_class=JsonRoute)


entry_response = JsonWriter(WorkQueueEntry)
cancel_response, reasons_response = JsonWriter(CancelledIds), JsonWriter(list[Reason])


add_list_route(router, ENTRIES, WorkQueueEntry, operation="list_entries")


@router.get("/{entry_id:row_id}", response_model=WorkQueueEntry)
async def get_entry(context: InjectedContext, entry_id: PathId) -> Response:
    """Get one entry."""
    return entry_response(mask_record(await context.app.work_queue.get(entry_id), context.mask))


@router.get("/{entry_id:row_id}/why", response_model=list[Reason])
async def why_entry(context: InjectedContext, entry_id: PathId) -> Response:
    """Reasons why the entry is not running, the current one first."""
    return reasons_response(await context.app.why(entry_id))


@router.post("/cancel", response_model=CancelledIds)
async def cancel_entries(context: InjectedContext, body: Ids) -> Response:
    """Cancel entries that are still queued. A dispatched entry has an execution: cancel that instead."""
    cancelled = await context.app.work_queue.cancel(body.ids)
    skipped = len(set(body.ids)) - len(cancelled)
    return cancel_response(CancelledIds(cancelled=list(cancelled), skipped=skipped))


@router.post("/{entry_id:row_id}/cancel", response_model=WorkQueueEntry)
async def cancel_entry(context: InjectedContext, entry_id: PathId) -> Response:
    """Cancel one entry; 409 if it is no longer queued."""
    cancelled = await context.app.work_queue.cancel([entry_id])
    entry = await context.app.work_queue.get(entry_id)
    if not cancelled:
        raise Refusal(problem(409, f"entry {entry_id} is already {entry.status}"))
    return entry_response(mask_record(entry, context.mask))
