"""Outermost middleware: security headers on every response, and a response to every failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from trax.web import headers
from trax.web.addresses import build_route_scope, channels_for
from trax.web.answers import error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
                headers.add_headers(message)
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
