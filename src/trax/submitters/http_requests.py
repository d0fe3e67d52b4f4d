"""A call at the endpoint: read within a limit, checked by the doorkeeper, and answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from trax.host.checks import is_id
from trax.submitters.signing import Denied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trax.submitters.signing import Doorkeeper

JSON: Final = (b"content-type", b"application/json")


class Request(NamedTuple):
    """What an ASGI server gives for one request."""

    scope: Mapping[str, Any]
    receive: Callable[[], Awaitable[Any]]
    send: Callable[[Any], Awaitable[None]]

    @property
    def path(self) -> str:
        return self.scope["path"]

    @property
    def operation(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def caller(self) -> str:
        """The other end of the connection, as far as the server knows it."""
        host, *_ = self.scope.get("client") or ("unknown",)
        return str(host)

    @property
    def headers(self) -> dict[str, str]:
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]
        }

    async def answer(self, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
        body = json.dumps(value).encode()
        head = [JSON, (b"content-length", str(len(body)).encode()), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})


async def let_in(
    request: Request, keeper: Doorkeeper, *, most: int, path: str | None, clock: Callable[[], float]
) -> Mapping[str, Any]:
    """What a caller says who may call; anybody else is denied, if possible before the body is read.

    `path` is the one of the whole endpoint as callers see it, where that is not the one seen here.
    """
    if request.scope["method"] != "POST":
        raise Denied(405, "only POST is answered here")
    headers = request.headers
    keeper.check_head(headers, now=clock())
    body = await _read(request, headers.get("content-length"), most)
    signed = request.path if path is None else f"{path.rstrip('/')}/{request.operation}"
    keeper.check(headers, "POST", signed, body, now=clock())
    return _object(body)


def runs_of(body: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The runs that are handed over: the id of each, and its train."""
    runs = body.get("runs")
    if not isinstance(runs, list):
        raise Denied(400, "the body has no list of runs")
    return [_run(one) for one in cast("list[Any]", runs)]


def _run(one: Any) -> tuple[int, str]:
    given = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
    metadata_id, train = given.get("metadata_id"), given.get("train")
    if not is_id(metadata_id) or not isinstance(train, str):
        raise Denied(400, "each of the runs has a metadata_id and a train")
    return cast("int", metadata_id), train


async def _read(request: Request, length: str | None, most: int) -> bytes:
    too_large = Denied(413, f"the body is larger than {most} bytes")
    if length is not None and length.isdigit() and int(length) > most:
        raise too_large
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Denied(400, "the caller hung up before it had said everything")
        body += message.get("body", b"")
        if len(body) > most:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        raise Denied(400, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise Denied(400, "the body is not a JSON object")
    return cast("Mapping[str, Any]", value)
