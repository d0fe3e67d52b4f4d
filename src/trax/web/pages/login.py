"""Coming in and going out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.web.access import Means
from trax.web.login import log_in, log_in_by_link, safe_next
from trax.web.pages.acts import posted
from trax.web.pages.rendering import show_plainly
from trax.web.problems import Refusal
from trax.web.room import csrf_token, link, room_of, visitor_of
from trax.web.sessions import delete_cookie, set_cookie

if TYPE_CHECKING:
    from trax.web.problems import Problem

router = APIRouter()
LONGEST_PASSWORD: Final = 1000
EVERYWHERE: Final = "everywhere"
USED: Final = "This link has been used already, or is more than an hour old."
NOT_HERE: Final = "Links sign nobody in here: people log in with their name."


@router.get("/login")
async def login(request: Request) -> Response:
    token, onward = request.query_params.get("token"), safe_next(request.query_params.get("next"))
    if token and visitor_of(request).means is Means.SESSION:
        return _redirect(request, onward)  # their own link, opened once more
    if token:
        return await _enter_by_link(request, token, onward)
    return _form(request, onward)


@router.post("/login")
async def enter(request: Request) -> Response:
    form = await posted(request)
    name, onward = form.get("name"), safe_next(form.get("next"))
    password = next(iter(form.all("password")), "")[:LONGEST_PASSWORD]
    try:
        session = await log_in(request, name, password)
    except Refusal as refused:
        return _refuse(request, onward, refused, name)
    return _begin(request, onward, session)


@router.post("/logout")
async def leave(request: Request) -> Response:
    """End the session of this browser, or with `where=everywhere` all that its user has."""
    visitor, sessions = visitor_of(request), room_of(request).app.sessions
    if visitor.session_id is not None:
        is_everywhere = (await posted(request)).get("where") == EVERYWHERE
        await (sessions.end_all(user=visitor.name) if is_everywhere else sessions.end([visitor.session_id]))
    answer = RedirectResponse(link(request, "/login"), 303)
    delete_cookie(request, answer)
    return answer


async def _enter_by_link(request: Request, token: str, onward: str) -> Response:
    if room_of(request).access.is_configured:
        return _form(request, onward, problem=NOT_HERE, status=403)
    try:
        session = await log_in_by_link(request, token)
    except Refusal as refused:
        return _refuse(request, onward, refused)
    if session is None:
        return _form(request, onward, problem=USED, status=403)
    return _begin(request, onward, session)


def _begin(request: Request, onward: str, session: str) -> Response:
    answer = _redirect(request, onward)
    set_cookie(request, answer, session, room_of(request).sessions.lifetime)
    return answer


def _redirect(request: Request, onward: str) -> Response:
    path, _, query = onward.partition("?")
    return RedirectResponse(link(request, path) + (f"?{query}" if query else ""), 303)


def _refuse(request: Request, onward: str, refused: Refusal, name: str = "") -> Response:
    told: Problem = refused.problem
    answer = _form(request, onward, name=name, problem=told.detail.capitalize(), status=told.status)
    answer.headers.update(refused.headers)
    return answer


def _form(request: Request, onward: str, *, name: str = "", problem: str = "", status: int = 200) -> Response:
    """The form for people who have a name here; where nobody has, how to get a link."""
    access = room_of(request).access
    return show_plainly(
        request,
        "login.html" if access.is_configured else "link.html",
        status=status,
        csrf=csrf_token(request),
        next=onward,
        name=name,
        problem=problem,
    )
