"""The outermost skin: every answer leaves with safe headers, and there is always an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from trax.web import headers
from trax.web.addresses import build_route_scope, ends_of
from trax.web.answers import answer_to

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Skin:
    """Answers for handlers that raised something nobody foresaw; that answer tells nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        receive, send = ends_of(scope, receive, send)
        scope = build_route_scope(scope)
        has_begun = False

        async def send_safely(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers.add_to(message)
            await send(message)

        try:
            await self._app(scope, receive, send_safely)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as error:
            if has_begun:
                raise  # half an answer is out: all that is left is to break it off
            answer = await answer_to(Request(scope), error)
            await answer(scope, receive, send_safely)
