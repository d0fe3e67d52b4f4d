"""Audit: who did what, and undoing some of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import ROWS, by_id, number, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole_number
from trax.web.room import room_of

if TYPE_CHECKING:
    from trax.web.pages.acts import Form

router = APIRouter()


@router.get("/audit")
async def audit(request: Request) -> Response:
    query = {name: word(request, name) for name in ("actor", "action", "target")}
    found = await room_of(request).app.audit.list(
        actor=query["actor"],
        action=query["action"],
        target=query["target"],
        before=number(request, "before"),
        limit=ROWS + 1,
    )
    return show(
        request,
        "audit.html",
        here="audit",
        listing=by_id(request, found),
        query=query,
        is_filtered=any(query.values()),
    )


@router.post("/audit")
async def undo(request: Request) -> Response:
    form = await posted(request)
    question = f"What was there before action {form.get('id')} will be put back."
    return await act(request, form, lambda: _undone(request, form), question=question)


async def _undone(request: Request, form: Form) -> Message:
    audit_id = whole_number("id", form.get("id"))
    if form.get("action") != "undo" or audit_id is None:
        raise TraxError("an action in the audit can only be undone")
    entry = await room_of(request).app.audit.undo(audit_id)
    return Message(f"Undone: {entry.noun} {', '.join(entry.ids)} is as it was")
