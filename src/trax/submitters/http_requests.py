"""A call at the endpoint: checked by the doorkeeper, read within limits, and answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from trax.host.checks import is_id
from trax.submitters.signing import AnswerKey, Denied, check_body

if TYPE_CHECKING:
    from trax.submitters.signing import Doorkeeper

JSON: Final = (b"content-type", b"application/json")


@dataclass(slots=True)
class Request:
    """What an ASGI server gives for one request."""

    scope: Mapping[str, Any]
    receive: Callable[[], Awaitable[Any]]
    send: Callable[[Any], Awaitable[None]]
    answer_key: AnswerKey | None = None
    """What its answer is signed with, once it is known that the caller may call."""
    is_read: bool = False
    """Whether the whole body has arrived."""

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
        """Signed for whoever may call. Whoever may not could give a signed refusal to somebody else."""
        body = json.dumps(value).encode()
        head = [JSON, (b"content-length", str(len(body)).encode()), *headers]
        if self.answer_key is not None:
            signed = self.answer_key.headers(status, body)
            head += [(name.encode(), text.encode()) for name, text in signed.items()]
        if not self.is_read and self.scope.get("http_version", "1.1").startswith("1"):
            head.append((b"connection", b"close"))  # or the server would read on, only to throw it away
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})


@dataclass(slots=True, kw_only=True)
class Inbox:
    """Bodies on their way: so large, so slow, and so many at once."""

    most_bytes: int
    seconds: float
    most_at_once: int
    _arriving: int = 0

    async def read(self, request: Request) -> bytes:
        if self._arriving >= self.most_at_once:
            raise Denied(503, f"{self._arriving} calls are being received already")
        self._arriving += 1
        try:
            async with asyncio.timeout(self.seconds):
                return await self._read(request)
        except TimeoutError:
            raise Denied(408, f"the body did not arrive within {self.seconds:g} s") from None
        finally:
            self._arriving -= 1

    async def _read(self, request: Request) -> bytes:
        too_large = Denied(413, f"the body is larger than {self.most_bytes} bytes")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.most_bytes:
            raise too_large
        body = bytearray()
        while not request.is_read:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise Denied(400, "the caller hung up before it had said everything")
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                raise too_large
            request.is_read = not message.get("more_body", False)
        return bytes(body)


async def load_body(
    request: Request, keeper: Doorkeeper, inbox: Inbox, *, path: str | None, clock: Callable[[], float]
) -> Mapping[str, Any]:
    """What a caller says who may call. Anybody else is denied by the head alone; their body is not read.

    `path` is the one of the whole endpoint as callers see it, where that is not the one seen here.
    """
    if request.scope["method"] != "POST":
        raise Denied(405, "only POST is answered here")
    headers = request.headers
    signed = request.path if path is None else f"{path.rstrip('/')}/{request.operation}"
    request.answer_key = keeper.check(headers, "POST", signed, now=clock())
    body = await inbox.read(request)
    check_body(headers, body)
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


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise Denied(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(value, dict):
        raise Denied(400, "the body is not a JSON object")
    return cast("Mapping[str, Any]", value)
