"""The door: nobody gets to a handler who may not, whatever the handler forgets to ask.

Everything needs a visitor, except the few paths that bring one in. Everything that is not a plain read needs
an operator, and where a browser may have been led astray, the token of our own pages.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from trax.host.acting import acting
from trax.records.audit import Actor, Via
from trax.web import csrf
from trax.web.access import LOCAL, Means, Role, Visitor
from trax.web.addresses import plain_path
from trax.web.answers import answer_to
from trax.web.cookies import cookie
from trax.web.login import refusal_to_wait
from trax.web.peer import is_from_here
from trax.web.problems import Refusal, problem
from trax.web.room import is_for_program, link, path_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from trax.web.limits import WebLimits
    from trax.web.room import Room

READING: Final = ("GET", "HEAD", "OPTIONS")
OPEN: Final = ("/login", "/logout")
CHEAP: Final = ("/health/live",)
CHEAP_BELOW: Final = ("/static/",)
"""What anybody may have, and for which nobody is looked up: it must not need the database."""
HEALTH: Final = "/health"
NO_ACCESS: Final = (
    "open the link that the server printed when it started, or print another one with `trax sessions link`; "
    "for programs configure $TRAX_WEB_TOKENS, or app.web(access=Access(…))"
)
FIELDS_AT_MOST: Final = 10_000
FORM: Final = "application/x-www-form-urlencoded"
REASON: Final = "x-reason"
REASON_FIELD: Final = "reason"
NOBODY: Final = Visitor("nobody", Role.VIEWER, Means.NOBODY)


class Guard:
    """Finds out who asks, lets in who may, and notes on the request what handlers need to know of it."""

    def __init__(self, app: ASGIApp, room: Room) -> None:
        self._app = app
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # there is nothing to talk about
            return
        self._room.proxies.apply_to(scope)
        request = Request(scope, receive)
        browser = request.cookies.get(csrf.COOKIE) or csrf.new_browser()
        is_known = csrf.COOKIE in request.cookies or is_for_program(request) or _is_static(request)
        send = send if is_known else _remembering(browser, request, send)
        try:
            visitor = request.state.visitor = await self._admit(request)
            request.state.csrf_binding = visitor.session or browser
            change = None if request.method in READING else await self._change(request)
        except Refusal as refused:
            answer = await answer_to(request, refused)
            await answer(scope, receive, send)
            return
        if change is None:
            await self._app(scope, receive, send)
            return
        via = Via.API if is_for_program(request) else Via.DASHBOARD
        with acting(Actor(visitor.name, via), reason=change.reason):
            await self._app(scope, _replayed(change.body, receive), send)

    async def _admit(self, request: Request) -> Visitor:
        if self._is_cheap(request):
            return NOBODY
        visitor = await self._visitor(request)
        is_open = path_of(request) in OPEN
        if visitor is None and not is_open:
            raise self._refusal(request)
        visitor = visitor or NOBODY
        if request.method not in READING and not (visitor.may_change or is_open):
            raise Refusal(
                problem(
                    403,
                    f"{visitor.name} is a viewer; changing anything takes an operator",
                    code="not_operator",
                )
            )
        return visitor

    def _is_cheap(self, request: Request) -> bool:
        path = path_of(request)
        is_open_health = path == HEALTH and self._room.access.open_health
        return path in CHEAP or path.startswith(CHEAP_BELOW) or (is_open_health and request.method in READING)

    async def _visitor(self, request: Request) -> Visitor | None:
        access, throttle = self._room.access, self._room.throttle
        address = request.client.host if request.client else ""
        secret = _bearer(request) if access.tokens else None
        wait = 0.0 if secret is None else throttle.wait_for_token(address, secret)
        if secret is not None and not wait and (known := access.holder_of(secret)):
            return known
        if access.authorize is not None and (known := await _hook_visitor(access.authorize(request))):
            return known
        if wait:
            raise refusal_to_wait("too many wrong tokens", wait)
        if secret is not None:
            throttle.note_wrong_token(address, secret)
        if known := await self._room.sessions.visitor(request):
            return known
        if access.anonymous is not None:
            return Visitor("anonymous", access.anonymous, Means.NOBODY)
        if access.insecure_local and is_from_here(request):
            return Visitor(LOCAL, Role.OPERATOR, Means.NOBODY)
        return None

    def _refusal(self, request: Request) -> Refusal:
        access = self._room.access
        if (access.users or not access.is_configured) and not is_for_program(request):
            return Refusal(
                problem(303, "log in first"), {"Location": link(request, "/login", next=_wanted(request))}
            )
        if access.insecure_local and not access.tokens:
            return Refusal(
                problem(
                    403,
                    "only this machine itself may enter, without a proxy and by a loopback address",
                    hint="to let others in, configure tokens or users instead of insecure_local",
                )
            )
        by_token = "send a token: Authorization: Bearer …" if access.tokens else None
        hint = by_token if access.is_configured else NO_ACCESS
        return Refusal(problem(401, "authentication required", hint=hint), {"WWW-Authenticate": "Bearer"})

    async def _change(self, request: Request) -> Change:
        """What is asked for, read as a whole: it is small, and a form carries its token in it."""
        visitor: Visitor = request.state.visitor
        is_program = visitor.means is Means.TOKEN
        if not is_program and csrf.is_from_elsewhere(request.headers):
            raise Refusal(
                problem(403, "a page of another origin may change nothing here", code="other_origin")
            )
        body = await _body(request, self._room.limits)
        form = _form(request, body)
        token = request.headers.get(csrf.HEADER) or form.get(csrf.FIELD, "")
        is_ours = self._room.signer.is_token_for(request.state.csrf_binding, token)
        if not is_program and csrf.is_from_browser(request.headers) and not is_ours:
            raise Refusal(
                problem(
                    403,
                    "this change lacks the token of our own pages, or the page is too old",
                    code="csrf",
                    hint="reload the page and try again; programs send Authorization: Bearer … instead",
                )
            )
        return Change(body, _said(request.headers.get(REASON)) or form.get(REASON_FIELD))


class Change(NamedTuple):
    """The body of a request that wants to change something, and the reason it gives."""

    body: bytes
    reason: str | None


async def _hook_visitor(answer: Any) -> Visitor | None:
    said = await answer if inspect.isawaitable(answer) else answer
    if isinstance(said, str):
        return Visitor("somebody", Role.named(said), Means.HOOK)
    return None if said is None else Visitor(said.name, Role.named(said.role), Means.HOOK)


def _wanted(request: Request) -> str | None:
    """Where somebody wanted to go, if it is worth coming back to."""
    path, query = plain_path(path_of(request)), request.scope["query_string"].decode("latin-1")
    if request.method not in READING or path == "/":
        return None
    return f"{path}?{query}" if query else path


def _is_static(request: Request) -> bool:
    return path_of(request).startswith(CHEAP_BELOW)


def _bearer(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


async def _body(request: Request, limits: WebLimits) -> bytes:
    """All of it. If it is too large or too slow, the rest is not read, and the connection is closed."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    told = f"a request may measure {limits.body_bytes} bytes"
                    raise Refusal(problem(413, told), {"Connection": "close"})
                parts.append(part)
    except TimeoutError:
        told = f"the body of a request must arrive within {limits.body_seconds:g} s"
        raise Refusal(problem(408, told), {"Connection": "close"}) from None
    return b"".join(parts)


def _form(request: Request, body: bytes) -> dict[str, str]:
    """The fields of a form, each once; nothing for any other body."""
    if not request.headers.get("content-type", "").startswith(FORM):
        return {}
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=FIELDS_AT_MOST))
    except ValueError:
        return {}


def _said(header: str | None) -> str | None:
    """Headers come as Latin-1, and people write UTF-8."""
    return header.encode("latin-1").decode("utf-8", "replace").strip() if header else None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the handler the body that was read, and then whatever really comes."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return rest.pop() if rest else await receive()

    return replay


def _remembering(browser: str, request: Request, send: Send) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(raw=message["headers"]).append("Set-Cookie", cookie(request, csrf.COOKIE, browser))
        await send(message)

    return send_with_cookie
