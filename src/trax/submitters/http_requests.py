"""A request to the HTTP endpoint: verify it, read its body within limits, and respond."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from trax.host.checks import is_id
from trax.submitters.signing import CallDenied, ResponseKey, check_body

if TYPE_CHECKING:
    from trax.submitters.signing import CallVerifier

JSON: Final = (b"content-type", b"application/json")


@dataclass(slots=True)
class EndpointRequest:
    """One ASGI request."""

    scope: Mapping[str, Any]
    receive: Callable[[], Awaitable[Any]]
    send: Callable[[Any], Awaitable[None]]
    response_key: ResponseKey | None = None
    """The key that signs the response; set once the caller is authenticated."""
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
        """The address of the client, or "unknown"."""
        host, *_ = self.scope.get("client") or ("unknown",)
        return str(host)

    @property
    def headers(self) -> dict[str, str]:
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]
        }

    async def respond(self, status: int, value: Any, *headers: tuple[bytes, bytes]) -> None:
        """Respond, signed for authenticated callers only: others could replay a signed refusal."""
        body = json.dumps(value).encode()
        head = [JSON, (b"content-length", str(len(body)).encode()), *headers]
        if self.response_key is not None:
            signed = self.response_key.headers(status, body)
            head += [(name.encode(), text.encode()) for name, text in signed.items()]
        if not self.is_read and self.scope.get("http_version", "1.1").startswith("1"):
            head.append((b"connection", b"close"))  # else the server would read the rest of the body
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})


@dataclass(slots=True, kw_only=True)
class BodyReader:
    """Reads bodies within limits of size, time and number at once."""

    most_bytes: int
    seconds: float
    most_at_once: int
    _arriving: int = 0

    async def read(self, request: EndpointRequest) -> bytes:
        if self._arriving >= self.most_at_once:
            raise CallDenied(503, f"too many calls: {self._arriving} bodies are being received")
        self._arriving += 1
        try:
            async with asyncio.timeout(self.seconds):
                return await self._read(request)
        except TimeoutError:
            raise CallDenied(408, f"the body did not arrive within {self.seconds:g} s") from None
        finally:
            self._arriving -= 1

    async def _read(self, request: EndpointRequest) -> bytes:
        too_large = CallDenied(413, f"the body is larger than {self.most_bytes} bytes")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self.most_bytes:
            raise too_large
        body = bytearray()
        while not request.is_read:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise CallDenied(400, "the caller disconnected before the body was complete")
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                raise too_large
            request.is_read = not message.get("more_body", False)
        return bytes(body)


async def load_body(
    request: EndpointRequest,
    verifier: CallVerifier,
    reader: BodyReader,
    *,
    path: str | None,
    clock: Callable[[], float],
) -> Mapping[str, Any]:
    """The body of an authenticated call. Others are rejected by their headers; their body is not read.

    `path` is the path of the endpoint that callers use, if a proxy rewrites it.
    """
    if request.scope["method"] != "POST":
        raise CallDenied(405, "method not allowed: use POST")
    headers = request.headers
    signed = request.path if path is None else f"{path.rstrip('/')}/{request.operation}"
    request.response_key = verifier.verify(headers, "POST", signed, now=clock())
    body = await reader.read(request)
    check_body(headers, body)
    return _parse_object(body)


def runs_of(body: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The submitted runs: id and train of each."""
    runs = body.get("runs")
    if not isinstance(runs, list):
        raise CallDenied(400, "the body has no list of runs")
    return [_parse_run(run) for run in cast("list[Any]", runs)]


def _parse_run(value: Any) -> tuple[int, str]:
    run = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    metadata_id, train = run.get("metadata_id"), run.get("train")
    if not is_id(metadata_id) or not isinstance(train, str):
        raise CallDenied(400, "each run needs a metadata_id and a train")
    return cast("int", metadata_id), train


def _parse_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise CallDenied(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(value, dict):
        raise CallDenied(400, "the body is not a JSON object")
    return cast("Mapping[str, Any]", value)
