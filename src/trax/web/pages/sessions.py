"""Sessions: who is signed in, where, and signing them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.web.api.sessions import sessions_for
from trax.web.pages.acts import act, posted
from trax.web.pages.listing import ROWS, by_id, number, word
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole_number
from trax.web.pages.words import many
from trax.web.room import room_of, visitor_of

if TYPE_CHECKING:
    from trax.web.pages.acts import Form

router = APIRouter()


@router.get("/sessions")
async def sessions(request: Request) -> Response:
    user = word(request, "user")
    found = await sessions_for(
        room_of(request), visitor_of(request), user=user, before=number(request, "before"), limit=ROWS + 1
    )
    return show(request, "sessions.html", here="sessions", listing=by_id(request, found), user=user)


@router.post("/sessions")
async def end(request: Request) -> Response:
    form = await posted(request)
    whose = f"of {form.get('user')}" if form.get("user") else "of everybody, yours too,"
    question = f"All sessions {whose} will be ended." if form.get("action") == "end_all" else None
    return await act(request, form, lambda: _end(request, form), question=question)


async def _end(request: Request, form: Form) -> Message:
    app = room_of(request).app
    match form.get("action"):
        case "end":
            session_id = whole_number("id", form.get("id"))
            ids = [] if session_id is None else await app.sessions.end([session_id])
        case "end_all":
            ids = await app.sessions.end_all(user=form.get("user") or None)
        case other:
            raise TraxError(f"unknown action {other!r}; expected end or end_all")
    return Message(f"Ended: {many(len(ids), 'session')}", is_good=bool(ids))
