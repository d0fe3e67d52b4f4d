"""The work queue: everything that wants to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.records.states import Origin, QueueStatus
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import newest_of, one_of, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.words import many
from trax.web.room import room_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax.host.work_queue import EntryKeywords

router = APIRouter()


@router.get("/queue")
async def queue(request: Request) -> Response:
    query: EntryKeywords = {
        "status": one_of(request, "status", QueueStatus),
        "origin": one_of(request, "origin", Origin),
        "train": word(request, "train"),
        "manifest": word(request, "manifest"),
        "group": word(request, "group"),
    }
    return show(
        request,
        "queue.html",
        here="queue",
        listing=await newest_of(request, room_of(request).app.work_queue, **query),
        query=query,
        is_filtered=any(query.values()),
        statuses=list(QueueStatus),
        origins=list(Origin),
    )


@router.post("/queue")
async def change_queue(request: Request) -> Response:
    form = await posted(request)
    question = f"{many(len(form.ids), 'entry', 'entries')} will be withdrawn, if still waiting."
    return await act(request, form, lambda: _withdrawn(request, form.ids), question=question)


@router.get("/queue/{entry_id}")
async def entry(request: Request, entry_id: int) -> Response:
    app = room_of(request).app
    found = await app.work_queue.get(entry_id)
    return show(request, "entry.html", here="queue", entry=found, reasons=await app.why(entry_id))


@router.post("/queue/{entry_id}")
async def change_entry(request: Request, entry_id: int) -> Response:
    form = await posted(request)
    question = f"Entry {entry_id} will be withdrawn, if still waiting."
    return await act(request, form, lambda: _withdrawn(request, [entry_id]), question=question)


async def _withdrawn(request: Request, ids: Sequence[int]) -> Message:
    count = await room_of(request).app.work_queue.cancel(ids)
    skipped = len(set(ids)) - count
    tail = f"; {skipped} skipped, no longer waiting" if skipped else ""
    return Message(f"{many(count, 'entry', 'entries')} withdrawn{tail}", is_good=count > 0)
