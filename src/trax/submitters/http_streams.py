"""Stream events and outcome of a run to an HTTP caller, line by line."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from trax.submitters.telling import event_line
from trax.train import Cancellation, current
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from trax.submitters.http_requests import EndpointRequest

KEEPALIVE_SECONDS: Final = 15.0
"""An empty line this often keeps proxies from closing the connection."""

MOST_LINES: Final = 10_000
"""How many lines are buffered for a slow caller. More are dropped, except outcome and last progress."""

HEADERS: Final = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]

_current_stream: ContextVar[RunStream | None] = ContextVar("trax_telling", default=None)


class RunStream:
    """Lines on their way to the caller. Thread-safe."""

    def __init__(self, request: EndpointRequest) -> None:
        assert request.response_key is not None  # noqa: S101 - set for every authenticated caller
        self._key = request.response_key
        self._receive = request.receive
        self._send = request.send
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unsaid: bytes | None = None
        self.token = Cancellation()
        """Cancels the run when the caller disconnects."""

    def put_event(self, kind: str, value: Any) -> None:
        self._put(event_line(kind, value))

    def progress(self, fraction: float, message: str | None) -> None:
        event = event_line("progress", [fraction, message])
        self._unsaid = None if self._put(event) else event

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
        doing = asyncio.create_task(work, name="trax http run")
        doing.add_done_callback(lambda _: self._lines.put_nowait(None))
        watching = asyncio.create_task(self._watch_caller(), name="trax http caller")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while (text := await self._next()) is not None:
                await self._send({"type": "http.response.body", "body": self._sign(text), "more_body": True})
            last = b"".join(map(self._sign, filter(None, (self._unsaid, doing.result()))))
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self.token.cancel("the caller no longer reads the response")  # no effect on a run that has ended
            watching.cancel()
            await asyncio.wait([doing, watching])

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
            "message": hide_words(record.getMessage(), words),
            "trace": trace and hide_words(trace, words),
        }
        stream.put_event("log", event)


_LOG_HANDLER: Final = StreamLogHandler()
"""One for all endpoints of the process; with several, each would send the same line."""
