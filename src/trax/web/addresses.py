"""Requests as the routes see them: `%2F` is part of a name, and HEAD is GET without a body."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from starlette.convertors import StringConvertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

SLASH: Final = "\uffff"
"""Stands for a slash that was sent as `%2F`. No character of Unicode is this one, and no name can have it."""
ESCAPED: Final = re.compile("%2[fF]")


class NameConvertor(StringConvertor):
    """A name in a path, written `{name:name}`. Its slashes are sent as `%2F`, or plainly where that is clear.

    `/manifests/a%2Fwhy` is the manifest `a/why`; `/manifests/a/why` asks why `a` is not running.
    """

    regex = ".*"

    def convert(self, value: str) -> str:
        return plain_path(value)


class SegmentConvertor(NameConvertor):
    """The same where a slash as it is ends the name: `{name:segment}`."""

    regex = "[^/]+"


register_url_convertor("name", NameConvertor())
register_url_convertor("segment", SegmentConvertor())


def build_route_scope(scope: Scope) -> Scope:
    """The scope for the routes: its path tells which slashes were escaped, and HEAD asks for GET."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "path": _path(scope), "method": method}


def plain_path(path: str) -> str:
    """The path or the name as it is meant, with slashes only."""
    return path.replace(SLASH, "/")


def quote_path(path: str) -> str:
    """The path as it stands in an address."""
    return "%2F".join(map(quote, path.split(SLASH)))


def _path(scope: Scope) -> str:
    """What server and mounts have done with the path stays: only what came from `%2F` is marked in it."""
    path: str = scope["path"].replace(SLASH, "\N{REPLACEMENT CHARACTER}")
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw:
        return path
    kept = SLASH.join(unquote(part) for part in ESCAPED.split(raw.decode("latin-1")))
    mounted = len(scope.get("root_path", ""))
    return path[:mounted] + kept[mounted:] if plain_path(kept) == path else path


class HeadersOnly:
    """Both ends of a request for headers: they pass, the body does not, and a stream that goes on ends."""

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
        """Nothing is sent with such a request; once the headers are out, nobody is there any more."""
        if not self._has_asked:
            self._has_asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._begun.wait()
        return {"type": "http.disconnect"}


def ends_of(scope: Scope, receive: Receive, send: Send) -> tuple[Receive, Send]:
    """How to hear from whoever asked, and how to answer."""
    if scope["method"] != "HEAD":
        return receive, send
    only = HeadersOnly(send)
    return only.receive, only.send
