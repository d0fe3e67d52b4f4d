"""Request paths as the routes see them: `%2F` is part of a name, and HEAD is GET without a body."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from starlette.convertors import StringConvertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

SLASH: Final = "\uffff"
"""Marks a slash that was sent as `%2F`. It is a Unicode noncharacter, so no name contains it."""
ESCAPED: Final = re.compile("%2[fF]")


class NameConvertor(StringConvertor):
    """A name in a path, written `{name:name}`. Its slashes are sent as `%2F`, or as `/` if unambiguous.

    `/manifests/a%2Fwhy` is the manifest `a/why`; `/manifests/a/why` asks why `a` is not running.
    """

    regex = ".*"

    def convert(self, value: str) -> str:
        return plain_path(value)


class SegmentConvertor(NameConvertor):
    """A name in a path that an unescaped slash ends: `{name:segment}`."""

    regex = "[^/]+"


register_url_convertor("name", NameConvertor())
register_url_convertor("segment", SegmentConvertor())


def build_route_scope(scope: Scope) -> Scope:
    """Build the scope for routing: escaped slashes are marked in its path, and HEAD becomes GET."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "path": _path(scope), "method": method}


def plain_path(path: str) -> str:
    """The path or name with marked slashes turned back into `/`."""
    return path.replace(SLASH, "/")


def quote_path(path: str) -> str:
    """The path, percent-encoded for a URL."""
    return "%2F".join(map(quote, path.split(SLASH)))


def _path(scope: Scope) -> str:
    """The path as the server and mounts left it, with slashes that came from `%2F` marked."""
    path: str = scope["path"].replace(SLASH, "\N{REPLACEMENT CHARACTER}")
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw:
        return path
    kept = SLASH.join(unquote(part) for part in ESCAPED.split(raw.decode("latin-1")))
    mounted = len(scope.get("root_path", ""))
    return path[:mounted] + kept[mounted:] if plain_path(kept) == path else path


class HeadersOnly:
    """`receive` and `send` for HEAD: headers pass, the body is dropped, and an endless stream is ended."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = asyncio.Event()
        self._has_asked = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send(message)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._begun.set()

    async def receive(self) -> Message:
        """An empty body, then a disconnect once the headers are sent."""
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._begun.wait()
        return {"type": "http.disconnect"}


def channels_for(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """The `receive` and `send` to use for this request."""
    if scope["method"] != "HEAD":
        return receive, send
    only = HeadersOnly(send)
    return only.receive, only.send
