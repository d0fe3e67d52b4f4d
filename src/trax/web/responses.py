"""Every response: security headers, and errors as problem+json for programs or a page for people."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse
from starlette.routing import Match

from trax.web.context import current_url, is_for_program
from trax.web.pages.rendering import Assets, show_plain
from trax.web.peer import build_route_scope, channels_for
from trax.web.problems import Refusal, problem_of, problem_response

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from trax.web.problems import Problem


POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NO_STORE: Final = "no-store"
STRICT_TRANSPORT: Final = "max-age=31536000"
"""Sent with TLS: for a year, browsers use this host with TLS only."""
REDIRECTS: Final = range(300, 400)
RETRYABLE: Final = (429, 500, 503)
"""Statuses for which the page offers a retry."""
ACCESS_CODES: Final = ("not_authenticated", "not_allowed")
"""Codes of clients without access: the page has no link to the home page."""
METHODS: Final = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")


def add_headers(message: Message, *, is_host_tls: bool) -> None:
    """Add the headers to a response start message; an existing Cache-Control is kept."""
    headers = MutableHeaders(raw=message["headers"])
    if is_host_tls:
        headers.setdefault("Strict-Transport-Security", STRICT_TRANSPORT)
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", NO_STORE)


class HeadersMiddleware:
    """Adds security headers, and turns unexpected exceptions into a 500 that reveals nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        receive, send = channels_for(scope, receive, send)
        scope = build_route_scope(scope)
        has_started = False

        async def send_safely(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                # Read here, since the guard sets the scheme that a trusted proxy has seen.
                is_own_host = not scope.get("root_path")  # the header applies to everything on the host
                add_headers(message, is_host_tls=is_own_host and scope.get("scheme") == "https")
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except ClientDisconnect:
            return  # the client is gone
        except Exception as error:
            if has_started:
                raise  # the response has begun; it can only be aborted
            response = await error_response(Request(scope), error)
            await response(scope, receive, send_safely)


async def error_response(request: Request, error: Exception) -> Response:
    """Build the response for an exception."""
    problem = problem_of(error)
    headers = dict(error.headers or {}) if isinstance(error, Refusal | HTTPException) else {}
    if problem.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_of_path(request))
    if is_for_program(request):
        return problem_response(problem, headers)
    response = await problem_page(request, problem)
    response.headers.update(headers)
    return response


def _methods_of_path(request: Request) -> list[str]:
    """The methods of all routes that match the path; the framework reports those of the first one only."""
    if isinstance(request.scope.get("endpoint"), Assets):
        return ["GET", "HEAD"]  # the mount matches any method and rejects the others itself
    scope = {"type": "http", "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    methods = {
        method
        for method in METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    }
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


async def problem_page(request: Request, problem: Problem) -> Response:
    """Build an error page. The client may be unauthenticated, so it shows only the problem."""
    if problem.status in REDIRECTS:
        return RedirectResponse("", problem.status)  # the Location header comes with the Refusal
    return show_plain(
        request,
        "problem.html",
        status=problem.status,
        problem=problem,
        again=current_url(request) if problem.status in RETRYABLE and request.method == "GET" else None,
        is_inside=problem.code not in ACCESS_CODES,
    )
