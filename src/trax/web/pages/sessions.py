"""Session page: list and end browser sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from trax.errors import TraxError
from trax.web.api.sessions import sessions_for
from trax.web.pages.acts import read_form, run_action
from trax.web.pages.listing import ROWS, by_id, query_number, query_text
from trax.web.pages.messages import Message
from trax.web.pages.rendering import show
from trax.web.pages.spelled import whole_number
from trax.web.pages.words import many
from trax.web.room import context_of, visitor_of

if TYPE_CHECKING:
    from trax.web.pages.acts import Form

router = APIRouter()


@router.get("/sessions")
async def sessions(request: Request) -> Response:
    user = query_text(request, "user")
    rows = await sessions_for(
        context_of(request),
        visitor_of(request),
        user=user,
        before=query_number(request, "before"),
        limit=ROWS + 1,
    )
    return show(request, "sessions.html", here="sessions", listing=by_id(request, rows), user=user)


@router.post("/sessions")
async def end(request: Request) -> Response:
    form = await read_form(request)
    whose = f"of {form.get('user')}" if form.get("user") else "of all users, including yours,"
    question = f"All sessions {whose} will be ended." if form.get("action") == "end_all" else None
    return await run_action(request, form, lambda: _end(request, form), question=question)


async def _end(request: Request, form: Form) -> Message:
    app = context_of(request).app
    match form.get("action"):
        case "end":
            session_id = whole_number("id", form.get("id"))
            ids = [] if session_id is None else await app.sessions.end([session_id])
        case "end_all":
            ids = await app.sessions.end_all(user=form.get("user") or None)
        case other:
            raise TraxError(f"unknown action {other!r}; expected end or end_all")
    return Message(f"Ended: {many(len(ids), 'session')}", is_good=bool(ids))
