"""A request to the HTTP endpoint: verify it, read its body within limits, respond once or line by line."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from trax.bounds import is_id
from trax.errors import InvalidInput, format_value
from trax.escapes import visible_text
from trax.remote.http.protocol import event_line
from trax.remote.http.signing import CallDenied, ResponseKey, check_body
from trax.schedule.validate import AT_LEAST_ONE, ID, ID_OR_NONE, MOMENT, NAME, TEXT
from trax.train import Cancellation, current
from trax.train.secrets import hide_words
from trax.worker.capture import message_of

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from trax.remote.http.signing import CallVerifier
    from trax.schedule.validate import Requirement


JSON: Final = (b"content-type", b"application/json")

MOST_VISIBLE: Final = 200
"""How many characters of a path or an address are logged."""


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
    def visible_path(self) -> str:
        """The path for a log line."""
        return visible_text(self.path[:MOST_VISIBLE])

    @property
    def visible_caller(self) -> str:
        """The address of the client for a log line, or "unknown"; a proxy's header may set it."""
        host, *_ = self.scope.get("client") or ("unknown",)
        return visible_text(str(host)[:MOST_VISIBLE])

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


REQUIRED_FACTS: Final[dict[str, Requirement]] = {"metadata_id": ID, "external_id": NAME, "train": NAME}
OTHER_FACTS: Final[dict[str, Requirement]] = {
    "manifest": NAME,
    "attempt": AT_LEAST_ONE,
    "parent_id": ID,
    "scheduled_for": TEXT,
}
"""May be missing or null."""


def train_of(body: Mapping[str, Any]) -> str:
    return _validate(TEXT, "train", body.get("train"))


def parent_of(body: Mapping[str, Any]) -> int | None:
    return _validate(ID_OR_NONE, "parent_id", body.get("parent_id"))


def facts_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the run that the caller keeps: `RUN_FIELDS`, and no others."""
    facts = body.get("facts")
    if not isinstance(facts, dict):
        raise CallDenied(400, "the body has no object 'facts' that describes the run")
    known = cast("dict[str, Any]", facts)
    if unknown := known.keys() - REQUIRED_FACTS.keys() - OTHER_FACTS.keys():
        raise CallDenied(400, f"facts: unknown field {format_value(min(unknown))}")
    found = {name: _validate(each, name, known.get(name)) for name, each in REQUIRED_FACTS.items()}
    for name, requirement in OTHER_FACTS.items():
        if known.get(name) is not None:
            found[name] = _validate(requirement, name, known[name])
    if "scheduled_for" in found:
        found["scheduled_for"] = _parse_moment(found["scheduled_for"])
    return found


def _parse_moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CallDenied(400, "scheduled_for is not an ISO 8601 datetime") from None
    return _validate(MOMENT, "scheduled_for", moment)


def _validate(requirement: Requirement, name: str, value: Any) -> Any:
    try:
        return requirement(name, value)
    except InvalidInput as error:
        raise CallDenied(400, str(error)) from None


def _parse_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise CallDenied(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(value, dict):
        raise CallDenied(400, "the body is not a JSON object")
    return cast("Mapping[str, Any]", value)


KEEPALIVE_SECONDS: Final = 15.0
"""An empty line this often keeps proxies from closing the connection."""

MOST_LINES: Final = 10_000
"""How many lines are buffered for a slow caller. More are dropped, except outcome and last progress."""

HEADERS: Final = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]

_current_stream: ContextVar[RunStream | None] = ContextVar("trax_telling", default=None)


class RunStream:
    """Lines to be sent to the caller. Thread-safe."""

    def __init__(self, request: EndpointRequest) -> None:
        assert request.response_key is not None  # noqa: S101 - set for every authenticated caller
        self._key = request.response_key
        self._receive = request.receive
        self._send = request.send
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unsent_event: bytes | None = None
        self.token = Cancellation()
        """Cancels the run when the caller disconnects."""

    def put_event(self, kind: str, value: Any) -> None:
        self._put(event_line(kind, value))

    def progress(self, fraction: float, message: str | None) -> None:
        event = event_line("progress", [fraction, message])
        self._unsent_event = None if self._put(event) else event

    @contextmanager
    def capture_logs(self) -> Generator[None]:
        """Send the log lines of the code in the block, from all its threads, to the caller."""
        logging.getLogger().addHandler(_LOG_HANDLER)  # no effect if it is there already
        token = _current_stream.set(self)
        try:
            yield
        finally:
            _current_stream.reset(token)

    async def stream(self, work: Coroutine[Any, Any, bytes]) -> None:
        """Send lines until the work returns its last line, even after the caller has disconnected."""
        task = asyncio.create_task(work, name="trax http run")
        task.add_done_callback(lambda _: self._lines.put_nowait(None))
        watching = asyncio.create_task(self._watch_caller(), name="trax http caller")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while (text := await self._next()) is not None:
                await self._send({"type": "http.response.body", "body": self._sign(text), "more_body": True})
            last = b"".join(map(self._sign, filter(None, (self._unsent_event, task.result()))))
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self.token.cancel("the caller no longer reads the response")  # no effect on a run that has ended
            watching.cancel()
            await asyncio.wait([task, watching])

    def _sign(self, line_bytes: bytes) -> bytes:
        """Sign with the line number, so that a changed, missing or moved line is detected."""
        text = line_bytes.rstrip(b"\n")
        if not text:
            return line_bytes
        self._sent += 1
        return self._key.sign_line(self._sent, text) + b"\n"

    def _put(self, line_bytes: bytes) -> bool:
        """Queue a line; False if the buffer is full."""
        if self._lines.qsize() >= MOST_LINES:
            return False
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line_bytes)
        return True

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(KEEPALIVE_SECONDS):
                return await self._lines.get()
        except TimeoutError:
            return b"\n"

    async def _watch_caller(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.token.cancel("the caller disconnected")


class StreamLogHandler(logging.Handler):
    """Sends a log line to the caller of the run that logged it, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = _current_stream.get()
        if stream is None:
            return
        run = current()
        words = frozenset[str]() if run is None else run.secret_words
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        event = {
            "logger": record.name,
            "level": record.levelno,
            "message": hide_words(message_of(record), words),
            "trace": trace and hide_words(trace, words),
        }
        stream.put_event("log", event)


_LOG_HANDLER: Final = StreamLogHandler()
"""One for all endpoints of the process; with several, each would send the same line."""
