"""Connections of visitors: so many at once, and none that stands still may stay.

uvicorn bounds how long a connection is idle and how large a head is. What it leaves open is bounded here: how
many connections there are, and how long a head, a body and the reading of an answer may take.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from trax.host.log_limit import LogLimit

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator
    from threading import Event

    from fastapi import FastAPI

    from trax.web.limits import WebLimits

logger = logging.getLogger(__name__)

LAST_SECONDS: Final = 3
"""How long requests may take to end once the server ends."""
FULL_SHARE: Final = 0.1
"""Of the usual time a head or a body may take this much while all connections are taken: others wait."""
MOMENT_SECONDS: Final = 1.0
"""A handler that reads a body too long may say so, before the connection is closed."""
ACCEPT_SECONDS: Final = 1.0
"""When to try again after no connection could be accepted."""
SWEEP_TICKS: Final = 5
PIECE_BYTES: Final = 4096
UVICORN: Final = ("uvicorn", "uvicorn.error")


class LimitedConnection(H11Protocol):
    """One connection, which knows what it waits for."""

    def __init__(
        self, limits: WebLimits, all_open: set[LimitedConnection], on_lost: Callable[[], None], **given: Any
    ) -> None:
        super().__init__(**given)
        self._limits = limits
        self._all_open = all_open
        self._on_lost = on_lost
        self._resumed = 0
        self._step: tuple[object, ...] = ()
        self._step_began = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._all_open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._all_open.discard(self)
        self._on_lost()

    def data_received(self, data: bytes) -> None:
        """In pieces, or a head of any length would pass that arrives at once."""
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + PIECE_BYTES])

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1

    def overdue_step(self, now: float, *, is_full: bool) -> str | None:
        """What the visitor takes too long for, if so. It is asked a few times each second."""
        waits_for, seconds = self._current_step(is_full=is_full)
        step = (waits_for, self.cycle, self._resumed)
        if step != self._step:
            self._step, self._step_began = step, now
        return waits_for if now - self._step_began > seconds else None

    @property
    def is_receiving(self) -> bool:
        """Whether nothing was answered yet to what has not arrived as a whole."""
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_started  # pyright: ignore[reportUnnecessaryComparison]

    def _current_step(self, *, is_full: bool) -> tuple[str | None, float]:
        limits, share = self._limits, FULL_SHARE if is_full else 1.0
        if self.transport.is_closing() or self.flow.write_paused:
            return "answer", limits.send_seconds
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            return "head", share * limits.head_seconds
        if self.cycle.more_body:
            return "body", share * (limits.body_seconds + MOMENT_SECONDS)
        return None, float("inf")


class WebServer(uvicorn.Server):
    """Serves one application on a socket that listens already, until it is told to stop.

    It leaves signals to whoever runs the process, and the socket open.
    """

    def __init__(self, web: FastAPI, listening: socket.socket, limits: WebLimits, stopping: Event) -> None:
        super().__init__(_config(web, limits))
        self._web = web
        self._listening = listening
        self._limits = limits
        self._stopping = stopping
        self._connections: set[LimitedConnection] = set()
        self._accepted = 0
        self._arriving: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._log = LogLimit()
        for name in UVICORN:
            logging.getLogger(name).setLevel(logging.WARNING)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        said = logging.getLogger("uvicorn.error")
        filters = (_is_failure, self._log)  # else each visitor could cause a line
        for one in filters:
            said.addFilter(one)
        try:
            yield
        finally:
            for one in filters:
                said.removeFilter(one)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        await self.lifespan.startup()
        self._listening.settimeout(0)
        self.servers = []
        self._listen()
        self.started = True

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self._sweep()
        return await super().on_tick(counter) or self._stopping.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        self._end_listening()
        for connection in [one for one in self._connections if one.is_receiving]:
            connection.transport.abort()
        await self._web.state.room.fanout.close()  # or the server would wait for those who watch
        await super().shutdown()
        if self.server_state.tasks:  # they were asked to stop, and may have something to write
            await asyncio.wait(self.server_state.tasks, timeout=LAST_SECONDS)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Until it is told to stop. However that ends, no connection is left behind."""
        try:
            await super().serve(sockets)
        finally:
            self._end_listening()
            await asyncio.gather(*self._arriving, return_exceptions=True)
            for connection in list(self._connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    @property
    def _is_full(self) -> bool:
        return self._accepted >= self._limits.connections

    def _listen(self) -> None:
        if not (self._is_full or self._is_ending):
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _end_listening(self) -> None:
        self._is_ending = True
        self._stop_listening()

    def _stop_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            text = "the dashboard cannot accept connections, trying again: %s"
            self._log.log(logger, logging.WARNING, text, error)
            self._stop_listening()
            asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._listen)
            return
        self._accepted += 1
        if self._is_full:
            self._stop_listening()
            text = "all %s connections to the dashboard are taken; the next visitor waits until one is free"
            self._log.log(logger, logging.WARNING, text, self._accepted)
        arriving = asyncio.create_task(self._connect(accepted), name="trax web connection")
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def build() -> LimitedConnection:
            return LimitedConnection(
                self._limits,
                self._connections,
                self._leave,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                _loop=loop,
            )

        try:
            accepted.settimeout(0)
            await loop.connect_accepted_socket(build, accepted)
        except OSError:
            accepted.close()
            self._leave()

    def _leave(self) -> None:
        self._accepted -= 1
        self._listen()

    def _sweep(self) -> None:
        """Close what stands still. No answer is sent: nobody would read it."""
        now, is_full = asyncio.get_running_loop().time(), self._is_full
        for connection in list(self._connections):
            if slow := connection.overdue_step(now, is_full=is_full):
                text = "a connection to the dashboard was closed: its %s took too long"
                self._log.log(logger, logging.WARNING, text, slow)
                connection.transport.abort()


def _is_failure(record: logging.LogRecord) -> bool:
    """A request that is broken off because the server ends has not failed."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _config(web: FastAPI, limits: WebLimits) -> uvicorn.Config:
    return uvicorn.Config(
        web,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # or a proxy that nobody declared would be believed
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=LAST_SECONDS,
        h11_max_incomplete_event_size=limits.head_bytes,
    )
