"""Middleware for every response: security headers, and a 500 that reveals nothing for unexpected errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request

from trax.web.error_pages import error_response
from trax.web.peer import build_route_scope, channels_for

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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


def add_headers(message: Message) -> None:
    """Add the headers to a response start message; an existing Cache-Control is kept."""
    headers = MutableHeaders(raw=message["headers"])
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
                add_headers(message)
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
