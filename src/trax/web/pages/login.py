"""Login and logout pages, and the page of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.errors import TraxError
from trax.web.access import Means
from trax.web.api.sessions import sessions_for
from trax.web.context import context_of, csrf_token, link, request_form, visitor_of
from trax.web.login import log_in, log_in_by_link, safe_next
from trax.web.pages.formats import many, whole_number
from trax.web.pages.listing import ROWS, by_id, query_number, query_text
from trax.web.pages.rendering import Message, run_action, show, show_plain
from trax.web.problems import Refusal
from trax.web.sessions import delete_cookie, set_cookie

if TYPE_CHECKING:
    from trax.web.context import Form
    from trax.web.problems import Problem


router = APIRouter()
LONGEST_PASSWORD: Final = 1000
EVERYWHERE: Final = "everywhere"
LINK_USED: Final = "This link has already been used or has expired."
LINKS_DISABLED: Final = "Sign-in links are disabled because access is configured. Log in with your name."


@router.get("/login")
async def login(request: Request) -> Response:
    token, onward = request.query_params.get("token"), safe_next(request.query_params.get("next"))
    if token and visitor_of(request).means is Means.SESSION:
        return _redirect(request, onward)  # already signed in: the link was opened again
    if token:
        return await _enter_by_link(request, token, onward)
    return _form(request, onward)


@router.post("/login")
async def enter(request: Request) -> Response:
    form = request_form(request)
    name, onward = form.get("name"), safe_next(form.get("next"))
    password = next(iter(form.all("password")), "")[:LONGEST_PASSWORD]
    try:
        session = await log_in(request, name, password)
    except Refusal as refusal:
        return _refuse(request, onward, refusal, name)
    return _begin(request, onward, session)


@router.post("/logout")
async def leave(request: Request) -> Response:
    """End the session of this browser, or with `where=everywhere` all sessions of its user."""
    visitor, sessions = visitor_of(request), context_of(request).app.sessions
    if visitor.session_id is not None:
        is_everywhere = request_form(request).get("where") == EVERYWHERE
        await (sessions.end_all(user=visitor.name) if is_everywhere else sessions.end([visitor.session_id]))
    response = RedirectResponse(link(request, "/login"), 303)
    delete_cookie(request, response)
    return response


async def _enter_by_link(request: Request, token: str, onward: str) -> Response:
    if context_of(request).access.is_configured:
        return _form(request, onward, problem=LINKS_DISABLED, status=403)
    try:
        session = await log_in_by_link(request, token)
    except Refusal as refusal:
        return _refuse(request, onward, refusal)
    if session is None:
        return _form(request, onward, problem=LINK_USED, status=403)
    return _begin(request, onward, session)


def _begin(request: Request, onward: str, session: str) -> Response:
    response = _redirect(request, onward)
    set_cookie(request, response, session, context_of(request).sessions.lifetime)
    return response


def _redirect(request: Request, onward: str) -> Response:
    path, _, query = onward.partition("?")
    return RedirectResponse(link(request, path) + (f"?{query}" if query else ""), 303)


def _refuse(request: Request, onward: str, refusal: Refusal, name: str = "") -> Response:
    problem: Problem = refusal.problem
    response = _form(request, onward, name=name, problem=problem.detail.capitalize(), status=problem.status)
    response.headers.update(refusal.headers)
    return response


def _form(request: Request, onward: str, *, name: str = "", problem: str = "", status: int = 200) -> Response:
    """The login form, or without configured access the instructions to get a link."""
    access = context_of(request).access
    return show_plain(
        request,
        "login.html" if access.is_configured else "link.html",
        status=status,
        csrf=csrf_token(request),
        next=onward,
        name=name,
        problem=problem,
    )


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
    form = request_form(request)
    whose = f"of {form.get('user')}" if form.get("user") else "of all users, including yours,"
    question = f"All sessions {whose} will be ended." if form.get("action") == "end_all" else None
    return await run_action(request, lambda: _end(request, form), question=question)


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
