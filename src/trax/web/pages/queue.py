"""Work queue pages: the list of entries, and one entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import count_noun
from trax.records.states import Origin, QueueStatus
from trax.web.context import context_of, request_form
from trax.web.pages.listing import load_newest, query_choice, query_text
from trax.web.pages.rendering import Message, row_ids, run_action, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.app.work_queue import EntryKeywords

router = APIRouter()


@router.get("/queue")
async def queue(request: Request) -> Response:
    query: EntryKeywords = {
        "status": query_choice(request, "status", QueueStatus),
        "origin": query_choice(request, "origin", Origin),
        "train": query_text(request, "train"),
        "manifest": query_text(request, "manifest"),
        "group": query_text(request, "group"),
    }
    return show(
        request,
        "queue.html",
        here="queue",
        listing=await load_newest(request, context_of(request).app.work_queue, **query),
        query=query,
        is_filtered=any(query.values()),
        statuses=list(QueueStatus),
        origins=list(Origin),
    )


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
    count = len(await context_of(request).app.work_queue.cancel(ids))
    skipped = len(set(ids)) - count
    tail = f"; {skipped} skipped: no longer queued" if skipped else ""
    return Message(f"{count_noun(count, 'entry', 'entries')} cancelled{tail}", is_good=count > 0)
