"""Audit page: list actions, and undo some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.records.nouns import AUDIT
from trax.web.context import context_of, request_form
from trax.web.pages.formats import whole_number
from trax.web.pages.listing import read_filters
from trax.web.pages.rendering import Message, run_action, show_list

if TYPE_CHECKING:
    from trax.web.context import Form

router = APIRouter()


@router.get("/audit")
async def audit(request: Request) -> Response:
    return await show_list(request, "audit.html", AUDIT, read_filters(request, AUDIT), here="audit")


@router.post("/audit")
async def undo(request: Request) -> Response:
    form = request_form(request)
    question = f"Action {form.get('id')} will be undone: the previous value is restored."
    return await run_action(request, lambda: _undo(request, form), question=question)


async def _undo(request: Request, form: Form) -> Message:
    audit_id = whole_number("id", form.get("id"))
    if form.get("action") != "undo" or audit_id is None:
        raise TraxError("invalid request; expected action undo with an id")
    entry = await context_of(request).app.audit.undo(audit_id)
    return Message(f"Undone: {entry.noun} {', '.join(entry.ids)} has its previous value again")
