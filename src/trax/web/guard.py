"""Authentication and authorization middleware: no handler has to check access itself.

Every path needs an authenticated client, except the login paths, static files and the liveness check. Every
change needs an operator and, if it may come from a browser, the CSRF token of our own pages.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from trax.app.sessions import FailedSignIn
from trax.clock import utc_now
from trax.engine.actor import acting
from trax.errors import format_value
from trax.records.audit import Actor, Via
from trax.web import sessions
from trax.web.access import ALLOWED_HOSTS, LOCAL, Means, Role, Visitor
from trax.web.context import Form, is_for_program, link, path_of
from trax.web.pages.rendering import LIVE
from trax.web.peer import cannot_be_rebound, host_of, is_allowed_host, is_local_request, plain_path
from trax.web.problems import Refusal, problem
from trax.web.responses import error_response
from trax.web.sessions import cookie
from trax.web.throttle import throttle_refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from trax.web.context import WebContext
    from trax.web.limits import BodyShare, WebLimits

READ_METHODS: Final = ("GET", "HEAD", "OPTIONS")
LOGIN_PATHS: Final = ("/login", "/logout")
PUBLIC_PATHS: Final = ("/health/live",)
PUBLIC_PREFIXES: Final = ("/static/",)
"""Served without authentication and without reading the session: they must work without the database."""
HEALTH: Final = "/health"
EVENTS: Final = "/api/v1/events"
NO_ACCESS: Final = (
    "open the link that the server printed at startup, or print a new one with `trax sessions link`; "
    "for programs configure $TRAX_WEB_TOKENS, or app.web(access=Access(…))"
)
MAX_FIELDS: Final = 5000
MAX_LENGTH_DIGITS: Final = 18
FORM: Final = "application/x-www-form-urlencoded"
REASON: Final = "x-reason"
REASON_FIELD: Final = "reason"
UNAUTHENTICATED: Final = Visitor("unauthenticated", Role.VIEWER, Means.ANONYMOUS)


class Guard:
    """Authenticates and authorizes each request, and sets `visitor` and `csrf_binding` on its state."""

    def __init__(self, app: ASGIApp, context: WebContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        self._context.proxies.apply_to(scope)
        request = Request(scope, receive)
        cookie_of_browser = request.cookies.get(sessions.browser_cookie_name(request))
        browser = cookie_of_browser or sessions.new_browser_id()
        is_known = bool(cookie_of_browser) or is_for_program(request) or _is_static(request)
        send = send if is_known else _with_browser_cookie(browser, request, send)
        with self._context.bodies.share() as share:
            await self._handle(request, browser, share, send)

    async def _handle(self, request: Request, browser: str, share: BodyShare, send: Send) -> None:
        scope, receive = request.scope, request.receive
        try:
            visitor = request.state.visitor = await self._admit(request)
            request.state.csrf_binding = visitor.session or browser
            change = None if request.method in READ_METHODS else await self._read_change(request, share)
        except Refusal as refusal:
            response = await error_response(request, refusal)
            await response(scope, receive, send)
            return
        if change is None:
            await self._app(scope, receive, send)
            return
        via = Via.API if is_for_program(request) else Via.DASHBOARD
        with acting(Actor(visitor.name, via), reason=change.reason):
            await self._app(scope, _replay_body(change.body, receive), send)

    async def _admit(self, request: Request) -> Visitor:
        if self._is_public(request):
            return UNAUTHENTICATED
        self._check_host(request)
        visitor = await self._visitor(request)
        is_open = path_of(request) in LOGIN_PATHS
        if visitor is None and not is_open:
            raise self._refusal(request)
        visitor = visitor or UNAUTHENTICATED
        if request.method not in READ_METHODS and not (visitor.may_change or is_open):
            raise Refusal(
                problem(
                    403,
                    f"{visitor.name} is a viewer; changes need the operator role",
                    code="not_operator",
                )
            )
        return visitor

    def _check_host(self, request: Request) -> None:
        allowed, host = self._context.access.allowed_hosts, host_of(request)
        if allowed and not is_allowed_host(host, allowed):
            detail = f"this server is not {format_value(host)}"
            hint = f"use one of its names, or add this one to {ALLOWED_HOSTS}"
            raise Refusal(problem(421, detail, code="other_host", hint=hint))

    def _is_public(self, request: Request) -> bool:
        path = path_of(request)
        is_open_health = path == HEALTH and self._context.access.open_health
        return (
            path in PUBLIC_PATHS
            or path.startswith(PUBLIC_PREFIXES)
            or (is_open_health and request.method in READ_METHODS)
        )

    async def _visitor(self, request: Request) -> Visitor | None:
        access, throttle = self._context.access, self._context.throttle
        address = request.client.host if request.client else ""
        secret = _bearer(request) if access.tokens else None
        wait = 0.0 if secret is None else throttle.wait_for_token(address, secret)
        if secret is not None and not wait and (known := access.holder_of(secret, utc_now())):
            return known
        if access.authorize is not None and (known := await _hook_visitor(access.authorize(request))):
            return known
        if wait:
            raise throttle_refusal("too many wrong tokens", wait)
        if secret is not None:
            await self._note_wrong_token(address, secret)
        if known := await self._context.sessions.find_visitor(request, is_use=_is_use(request)):
            return known
        if access.anonymous is not None:
            return self._anonymous(request, access.anonymous)
        if access.insecure_local and is_local_request(request):
            return Visitor(LOCAL, Role.OPERATOR, Means.ANONYMOUS)
        return None

    async def _note_wrong_token(self, address: str, secret: str) -> None:
        is_new = not self._context.throttle.is_known_wrong(secret)
        self._context.throttle.note_wrong_token(address, secret)
        if is_new:
            failure = FailedSignIn(why="wrong token", address=address)
            await self._context.app.sessions.record_failure(failure)

    def _anonymous(self, request: Request, role: Role) -> Visitor:
        """A client that nothing identifies. A page of another site must not be one, by rebinding its name."""
        if not (self._context.access.allowed_hosts or cannot_be_rebound(host := host_of(request))):
            raise Refusal(
                problem(
                    403,
                    f"without an account this is open as address or localhost, not as {format_value(host)}",
                    code="other_host",
                    hint=f"configure its names: {ALLOWED_HOSTS}, or Access(allowed_hosts=…)",
                )
            )
        return Visitor("anonymous", role, Means.ANONYMOUS)

    def _refusal(self, request: Request) -> Refusal:
        access = self._context.access
        if (access.users or not access.is_configured) and not is_for_program(request):
            return Refusal(
                problem(303, "authentication required"),
                {"Location": link(request, "/login", next=_return_path(request))},
            )
        if access.insecure_local and not access.tokens:
            return Refusal(
                problem(
                    403,
                    "access is limited to requests from this machine, without a proxy, to a loopback name",
                    hint="for remote access, configure tokens or users instead of insecure_local",
                )
            )
        by_token = "send a token: Authorization: Bearer …" if access.tokens else None
        hint = by_token if access.is_configured else NO_ACCESS
        return Refusal(problem(401, "authentication required", hint=hint), {"WWW-Authenticate": "Bearer"})

    async def _read_change(self, request: Request, share: BodyShare) -> ChangeRequest:
        """Check a changing request and read its whole body, since a form carries its CSRF token there."""
        visitor: Visitor = request.state.visitor
        is_program = visitor.means is Means.TOKEN
        if not is_program and sessions.is_cross_origin(request.headers):
            raise Refusal(
                problem(403, "requests from another origin may not make changes", code="other_origin")
            )
        body = await _read_body(request, self._context.limits, share)
        form = request.state.form = _parse_form(request, body)
        token = request.headers.get(sessions.HEADER) or form.get(sessions.FIELD)
        is_ours = self._context.signer.is_token_for(request.state.csrf_binding, token)
        if not is_program and sessions.is_from_browser(request.headers) and not is_ours:
            raise Refusal(
                problem(
                    403,
                    "the CSRF token is missing or has expired",
                    code="csrf",
                    hint="reload the page and try again; programs send Authorization: Bearer … instead",
                )
            )
        reason = _decode_header(request.headers.get(REASON)) or form.get(REASON_FIELD)
        return ChangeRequest(body, reason or None)


class ChangeRequest(NamedTuple):
    """The body of a changing request, and the reason given for the audit."""

    body: bytes
    reason: str | None


async def _hook_visitor(result: Any) -> Visitor | None:
    result = await result if inspect.isawaitable(result) else result
    if isinstance(result, str):
        return Visitor("unnamed", Role.parse(result), Means.HOOK)
    return None if result is None else Visitor(result.name, Role.parse(result.role), Means.HOOK)


def _return_path(request: Request) -> str | None:
    """The path to return to after login; None for the home page."""
    path, query = plain_path(path_of(request)), request.scope["query_string"].decode("latin-1")
    if request.method not in READ_METHODS or path == "/":
        return None
    return f"{path}?{query}" if query else path


def _is_use(request: Request) -> bool:
    """Whether a person may have asked for this: an open page asks for events and renews itself."""
    return LIVE not in request.headers and path_of(request) != EVENTS


def _is_static(request: Request) -> bool:
    return path_of(request).startswith(PUBLIC_PREFIXES)


def _bearer(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


async def _read_body(request: Request, limits: WebLimits, share: BodyShare) -> bytes:
    """Read the whole body. If it is too large or too slow, stop reading and close the connection."""
    visitor: Visitor = request.state.visitor
    most = limits.login_body_bytes if visitor is UNAUTHENTICATED else limits.body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and (len(declared) > MAX_LENGTH_DIGITS or int(declared) > most):
        raise _body_too_large(most)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _body_too_large(most)
                if not share.take(len(part), is_known=visitor.means is not Means.ANONYMOUS):
                    detail = "too many request bodies at the same time; try again in 1 s"
                    raise Refusal(problem(503, detail), {"Connection": "close", "Retry-After": "1"})
                parts.append(part)
    except TimeoutError:
        detail = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refusal(problem(408, detail), {"Connection": "close"}) from None
    return b"".join(parts)


def _body_too_large(most: int) -> Refusal:
    return Refusal(
        problem(413, f"the body is larger than the limit of {most} bytes"), {"Connection": "close"}
    )


def _parse_form(request: Request, body: bytes) -> Form:
    if not request.headers.get("content-type", "").startswith(FORM):
        return Form()
    text = body.decode(errors="replace")
    try:
        return Form(tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)))
    except ValueError:
        raise Refusal(problem(413, f"the form has more than {MAX_FIELDS} fields")) from None


def _decode_header(header: str | None) -> str | None:
    """Decode a header as UTF-8: the server hands it over as Latin-1."""
    return header.encode("latin-1").decode("utf-8", "replace").strip() if header else None


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that replays the body already read, then reads from the connection."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return rest.pop() if rest else await receive()

    return replay


def _with_browser_cookie(browser: str, request: Request, send: Send) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(raw=message["headers"]).append(
                "Set-Cookie", cookie(request, sessions.browser_cookie_name(request), browser)
            )
        await send(message)

    return send_with_cookie
