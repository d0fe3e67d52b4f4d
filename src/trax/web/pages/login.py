"""Sign in with a password or a one-time link, log out, and list sessions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trax.app.sessions import FailedSignIn
from trax.errors import TraxError, count_noun
from trax.records.nouns import SESSIONS
from trax.web.access import LONGEST_PASSWORD, Means, TooManyChecks
from trax.web.api.sessions import restrict_sessions
from trax.web.context import context_of, csrf_token, link, request_form, safe_next, visitor_of
from trax.web.pages.formats import whole_number
from trax.web.pages.listing import Listing, load_listing, read_filters
from trax.web.pages.rendering import Message, run_action, show_list, show_plain
from trax.web.peer import is_head
from trax.web.problems import Refusal, problem
from trax.web.sessions import delete_cookie, set_cookie
from trax.web.throttle import Attempt, throttle_refusal

if TYPE_CHECKING:
    from trax.web.context import Form
    from trax.web.problems import Problem

logger = logging.getLogger(__name__)
router = APIRouter()
EVERYWHERE: Final = "everywhere"
LINK_USED: Final = "This link has already been used or has expired."
LINKS_DISABLED: Final = "Sign-in links are disabled because access is configured. Log in with your name."


@router.get("/login")
async def login(request: Request) -> Response:
    token, onward = request.query_params.get("token"), safe_next(request.query_params.get("next"))
    if token and visitor_of(request).means is Means.SESSION:
        return _redirect(request, onward)  # already signed in: the link was opened again
    if token and not is_head(request):  # mail programs and chats check links with HEAD
        return await _enter_by_link(request, token, onward)
    return _form(request, onward)


@router.post("/login")
async def enter(request: Request) -> Response:
    form = request_form(request)
    name, onward = form.get("name"), safe_next(form.get("next"))
    password = next(iter(form.all("password")), "")[:LONGEST_PASSWORD]
    try:
        session = await _log_in(request, name, password)
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


async def _log_in(request: Request, name: str, password: str) -> str:
    """Verify name and password and begin a session; the error does not say which of them is wrong."""
    context, address = context_of(request), request.client.host if request.client else ""
    attempt = Attempt.of(name, address)
    if wait := context.throttle.reserve(attempt):
        raise throttle_refusal("too many login attempts", wait)
    is_first = context.throttle.is_first(attempt)
    await context.throttle.slow_down(attempt)
    if not context.access.users:
        raise Refusal(problem(401, "login is not available: no users are configured", code="wrong_password"))
    try:
        user = await context.passwords.find_user(name, password, networks=attempt.networks, is_first=is_first)
    except TooManyChecks:
        context.throttle.withdraw(attempt)
        raise throttle_refusal("too many logins at the same time", 1.0) from None
    if user is None:
        is_known = name in context.access.users
        why = "wrong password" if is_known else "unknown name"
        logger.warning("login from %s failed: %s", address, why)
        failure = FailedSignIn(why=why, address=address, user=name if is_known else None)
        await context.app.sessions.record_failure(failure)
        raise Refusal(problem(401, "wrong name or password", code="wrong_password"))
    context.throttle.forgive(attempt)
    return await context.sessions.begin(request, name, user)


async def _log_in_by_link(request: Request, token: str) -> str | None:
    """Begin a session with a one-time link; None if it was already used or has expired."""
    context, address = context_of(request), request.client.host if request.client else ""
    if wait := context.throttle.wait_for_token(address, token):
        raise throttle_refusal("too many invalid links", wait)
    session = await context.sessions.begin_by_link(request, token)
    if session is None:
        is_new = not context.throttle.is_known_wrong(token)
        context.throttle.note_wrong_token(address, token)
        if is_new:
            await context.app.sessions.record_failure(FailedSignIn(why="invalid link", address=address))
    return session


async def _enter_by_link(request: Request, token: str, onward: str) -> Response:
    if context_of(request).access.is_configured:
        return _form(request, onward, why=LINKS_DISABLED, status=403)
    try:
        session = await _log_in_by_link(request, token)
    except Refusal as refusal:
        return _refuse(request, onward, refusal)
    if session is None:
        return _form(request, onward, why=LINK_USED, status=403)
    return _begin(request, onward, session)


def _begin(request: Request, onward: str, session: str) -> Response:
    response = _redirect(request, onward)
    set_cookie(request, response, session, context_of(request).sessions.lifetime)
    return response


def _redirect(request: Request, onward: str) -> Response:
    path, _, query = onward.partition("?")
    return RedirectResponse(link(request, path) + (f"?{query}" if query else ""), 303)


def _refuse(request: Request, onward: str, refusal: Refusal, name: str = "") -> Response:
    why: Problem = refusal.problem
    response = _form(request, onward, name=name, why=why.detail.capitalize(), status=why.status)
    response.headers.update(refusal.headers)
    return response


def _form(request: Request, onward: str, *, name: str = "", why: str = "", status: int = 200) -> Response:
    """The login form, or without configured access the instructions to get a link."""
    access = context_of(request).access
    return show_plain(
        request,
        "login.html" if access.is_configured else "link.html",
        status=status,
        csrf=csrf_token(request),
        next=onward,
        name=name,
        problem=why,
    )


@router.get("/sessions")
async def sessions(request: Request) -> Response:
    form, visitor = read_filters(request, SESSIONS), visitor_of(request)
    allowed = restrict_sessions(visitor, form.filters)
    listing = Listing(rows=()) if allowed is None else await load_listing(request, SESSIONS, allowed)
    return await show_list(request, "sessions.html", SESSIONS, form, here="sessions", listing=listing)


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
    return Message(f"Ended: {count_noun(len(ids), 'session')}", is_good=bool(ids))
