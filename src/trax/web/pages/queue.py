"""Work queue pages: the list of entries, and one entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import count_noun
from trax.records.nouns import ENTRIES
from trax.web.context import context_of, request_form
from trax.web.pages.listing import read_filters
from trax.web.pages.rendering import Message, row_ids, run_action, show, show_list

if TYPE_CHECKING:
    from collections.abc import Sequence


router = APIRouter()


@router.get("/queue")
async def queue(request: Request) -> Response:
    return await show_list(request, "queue.html", ENTRIES, read_filters(request, ENTRIES), here="queue")


@router.post("/queue")
async def change_queue(request: Request) -> Response:
    ids = row_ids(request_form(request))
    question = f"{count_noun(len(ids), 'entry', 'entries')} will be cancelled, if still queued."
    return await run_action(request, lambda: _cancel(request, ids), question=question)


@router.get("/queue/{entry_id}")
async def entry(request: Request, entry_id: int) -> Response:
    app = context_of(request).app
    entry = await app.work_queue.get(entry_id)
    return show(request, "entry.html", here="queue", entry=entry, reasons=await app.why(entry_id))


@router.post("/queue/{entry_id}")
async def change_entry(request: Request, entry_id: int) -> Response:
    question = f"Entry {entry_id} will be cancelled, if still queued."
    return await run_action(request, lambda: _cancel(request, [entry_id]), question=question)


async def _cancel(request: Request, ids: Sequence[int]) -> Message:
    count = await context_of(request).app.work_queue.cancel(ids)
    skipped = len(set(ids)) - count
    tail = f"; {skipped} skipped: no longer queued" if skipped else ""
    return Message(f"{count_noun(count, 'entry', 'entries')} cancelled{tail}", is_good=count > 0)
