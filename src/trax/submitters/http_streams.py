"""One answer that is told line by line, for as long as a run takes, to a caller who may hang up."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from trax.submitters.telling import line
from trax.train import Cancellation, current
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from trax.submitters.http_requests import Request

BEAT_SECONDS: Final = 15.0
"""An empty line says that the run goes on, so that no proxy takes the connection for a dead one."""

MOST_LINES: Final = 10_000
"""How many lines may wait for a slow caller. More are dropped, but not the end and not the last progress."""

HEADERS: Final = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]

_hearer: ContextVar[Telling | None] = ContextVar("trax_telling", default=None)


class Telling:
    """Lines on their way to the caller. Any thread may say one."""

    def __init__(self, request: Request) -> None:
        assert request.answer_key is not None  # noqa: S101 - nobody else gets as far as this
        self._key = request.answer_key
        self._receive = request.receive
        self._send = request.send
        self._sent = 0
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unsaid: bytes | None = None
        self.token = Cancellation()
        """What stops the run: it is asked to when the caller hangs up."""

    def say(self, what: str, value: Any) -> None:
        self._put(line(what, value))

    def progress(self, fraction: float, message: str | None) -> None:
        told = line("progress", [fraction, message])
        self._unsaid = None if self._put(told) else told

    @contextmanager
    def hearing_logs(self) -> Generator[None]:
        """Pass on what the code in the block logs, in all the threads it uses."""
        logging.getLogger().addHandler(_HEARD_LOGS)  # nothing happens when it is there
        entered = _hearer.set(self)
        try:
            yield
        finally:
            _hearer.reset(entered)

    async def tell(self, work: Coroutine[Any, Any, bytes]) -> None:
        """Pass on what is said until the work gives its last line, also when nobody listens any more."""
        doing = asyncio.create_task(work, name="trax http run")
        doing.add_done_callback(lambda _: self._lines.put_nowait(None))
        watching = asyncio.create_task(self._watched(), name="trax http caller")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while (said := await self._next()) is not None:
                await self._send({"type": "http.response.body", "body": self._sign(said), "more_body": True})
            last = b"".join(map(self._sign, filter(None, (self._unsaid, doing.result()))))
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        finally:
            self.token.cancel("nobody listens to its answer")  # nothing happens to a run that is over
            watching.cancel()
            await asyncio.wait([doing, watching])

    def _sign(self, said: bytes) -> bytes:
        """With its number: a line that is changed, left out or put elsewhere on the way is noticed."""
        text = said.rstrip(b"\n")
        if not text:
            return said
        self._sent += 1
        return self._key.signed_line(self._sent, text) + b"\n"

    def _put(self, said: bytes) -> bool:
        """Whether there was room for it."""
        if self._lines.qsize() >= MOST_LINES:
            return False
        self._loop.call_soon_threadsafe(self._lines.put_nowait, said)
        return True

    async def _next(self) -> bytes | None:
        try:
            async with asyncio.timeout(BEAT_SECONDS):
                return await self._lines.get()
        except TimeoutError:
            return b"\n"

    async def _watched(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.token.cancel("the caller hung up")


class HeardLogs(logging.Handler):
    """Finds the caller that a log line is for, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        hearer = _hearer.get()
        if hearer is None:
            return
        run = current()
        words = frozenset[str]() if run is None else run.secret_words
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        told = {
            "logger": record.name,
            "level": record.levelno,
            "message": hide_words(record.getMessage(), words),
            "trace": trace and hide_words(trace, words),
        }
        hearer.say("log", told)


_HEARD_LOGS: Final = HeardLogs()
"""One for all endpoints of the process, or each of them would pass on the same line."""
