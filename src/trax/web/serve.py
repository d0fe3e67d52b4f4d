"""Serve the dashboard in its own thread and event loop, with limits against slow or numerous clients.

uvicorn limits idle time and header size. This adds a limit on open connections, and timeouts for receiving
headers, receiving a body, and sending a response.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from trax.engine.open_store import use_web_lane
from trax.errors import DefinitionError, TraxError
from trax.web.access import TOKENS, USERS, Access
from trax.web.application import create
from trax.web.limits import WebLimits
from trax.web.peer import is_loopback
from trax.worker.capture import LogLimit
from trax.worker.loop import PAUSES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from fastapi import FastAPI

    from trax.app.app import Trax

logger = logging.getLogger(__name__)
LAST_SECONDS: Final = 3
"""How long requests may run on after the server was stopped."""

FULL_SHARE: Final = 0.1
"""Share of the usual timeouts of clients that applies while all connections are in use."""

MOMENT_SECONDS: Final = 1.0
"""Extra time for the handler to send its own 408 response before the connection is closed."""

ACCEPT_SECONDS: Final = 1.0
"""Delay before accepting again after `accept` failed."""

SWEEP_TICKS: Final = 5

PIECE_BYTES: Final = 4096

UVICORN_LOGGERS: Final = ("uvicorn", "uvicorn.error")


LOOPBACK: Final = "127.0.0.1"

PORT: Final = 8080

STOP_SECONDS: Final = 10.0
"""How long a stopping process waits for the dashboard."""

BACKLOG: Final = 128

LISTEN_ERRORS: Final = {
    errno.EADDRINUSE: "the port is already in use",
    errno.EACCES: "permission denied",
    errno.EADDRNOTAVAIL: "this machine does not have this address",
}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The host and port to listen on."""

    port: int = PORT
    host: str = LOOPBACK


class WebListener:
    """An open listening socket; clients wait until it is served. Only opening it can fail."""

    def __init__(
        self, listen_address: ListenAddress, access: Access | None = None, limits: WebLimits | None = None
    ) -> None:
        self.access = access or Access.from_environment()
        self.limits = (limits or WebLimits.from_environment()).for_process()
        check_exposure(listen_address, self.access)
        self._listen_socket = _open_socket(listen_address)

    @property
    def address(self) -> str:
        host, port = self._listen_socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def sign_in_link(self, app: Trax) -> str | None:
        """A one-time sign-in link; None if access is configured."""
        if self.access.is_configured:
            return None
        return f"{self.address}/login?token={await app.sessions.create_link()}"

    @asynccontextmanager
    async def serve(self, app: Trax, **options: Any) -> AsyncGenerator[str]:
        """Serve the dashboard of an app during the block; yields its URL."""
        build = partial(create, app, access=self.access, limits=self.limits, **options)
        thread = WebThread(build, self._listen_socket, self.limits)
        thread.start()
        try:
            yield self.address
        finally:
            await asyncio.to_thread(thread.stop)
            self._listen_socket.close()


class WebThread:
    """The dashboard in its own thread, event loop and lane of the store.

    Thus no client delays a heartbeat or a job. It calls only what is thread-safe; the user's code runs in the
    event loop of the jobs (`Trax.run_in_app_loop`).
    """

    def __init__(self, build: Callable[[], FastAPI], listen_socket: socket.socket, limits: WebLimits) -> None:
        self._build = build
        self._web = build()  # so that invalid options raise in the caller
        self._listen_socket = listen_socket
        self._limits = limits
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trax web", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the server; a request that does not end in time is abandoned."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            text = "dashboard: did not stop within %s s; abandoning a request that blocks it"
            logger.warning(text, STOP_SECONDS)

    def _run(self) -> None:
        use_web_lane()
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            server = WebServer(self._web, self._listen_socket, self._limits, self._stopping)
            failure: BaseException | None = None
            try:
                asyncio.run(server.serve())
            except BaseException as error:  # noqa: BLE001 - the dashboard restarts after any error
                failure = error
            if self._stopping.is_set() and failure is None:
                return
            text = "dashboard: failed; restarting in %s s; jobs are not affected"
            logger.error(text, pause, exc_info=failure)
            if self._stopping.wait(pause):
                return
            self._web = self._build()  # its state belonged to the closed event loop


def check_exposure(listen_address: ListenAddress, access: Access) -> None:
    """Refuse to listen beyond loopback without configured access."""
    if is_loopback(listen_address.host):
        return
    if access.insecure_local:
        raise DefinitionError(
            "insecure_local makes every process of this machine an operator, but other machines can reach "
            f"{listen_address.host}: listen on {LOOPBACK}, or configure access instead of insecure_local"
        )
    if access.is_configured:
        return
    raise DefinitionError(
        f"the dashboard would be open to anyone who reaches {listen_address.host}: configure access with "
        f"${TOKENS} (name:role:secret) or ${USERS} (name:role:hash, see `trax dashboard --hash-password`), "
        f"or listen on {LOOPBACK} only"
    )


def _open_socket(listen_address: ListenAddress) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(
            listen_address.host, listen_address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = LISTEN_ERRORS.get(number or 0, str(error))
        raise TraxError(
            f"cannot listen on {listen_address.host}, port {listen_address.port}: {why}; "
            "choose another host or port"
        ) from None
    # A response is sent in two packets; with Nagle's algorithm the second would wait 40 ms for an ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class HttpConnection(H11Protocol):
    """An HTTP connection that tracks which step it is in, and for how long."""

    def __init__(
        self,
        limits: WebLimits,
        all_open: set[HttpConnection],
        on_lost: Callable[[], None],
        is_full: Callable[[], bool],
        **protocol_options: Any,
    ) -> None:
        super().__init__(**protocol_options)
        self._is_full = is_full
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
        """Feed data in pieces; otherwise headers that arrive at once would bypass the size limit."""
        for start in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + PIECE_BYTES])

    def on_response_complete(self) -> None:
        """While all connections are in use, each serves one request: who waits for one goes first."""
        if self._is_full():
            self.transport.close()  # once the client has read the response
        super().on_response_complete()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resumed += 1

    def overdue_step(self, now: float, *, is_full: bool) -> str | None:
        """The step that exceeded its timeout (head, body, response), or None. Called a few times a second."""
        waits_for, seconds = self._current_step(is_full=is_full)
        step = (waits_for, self.cycle, self._resumed)
        if step != self._step:
            self._step, self._step_began = step, now
        return waits_for if now - self._step_began > seconds else None

    @property
    def is_receiving(self) -> bool:
        """Whether the body is still arriving and no response has been started."""
        return self.cycle is not None and self.cycle.more_body and not self.cycle.response_started  # pyright: ignore[reportUnnecessaryComparison]

    def _current_step(self, *, is_full: bool) -> tuple[str | None, float]:
        limits, share = self._limits, FULL_SHARE if is_full else 1.0
        if self.transport.is_closing() or self.flow.write_paused:
            return "response", share * limits.send_seconds
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            return "head", share * limits.head_seconds
        if self.cycle.more_body:
            return "body", share * (limits.body_seconds + MOMENT_SECONDS)
        return None, float("inf")


class WebServer(uvicorn.Server):
    """Serves one application on a listening socket until it is stopped.

    It installs no signal handlers, and leaves the socket open.
    """

    def __init__(
        self, web: FastAPI, listen_socket: socket.socket, limits: WebLimits, stopping: Event
    ) -> None:
        super().__init__(_config(web, limits))
        self._web = web
        self._listen_socket = listen_socket
        self._limits = limits
        self._stopping = stopping
        self._connections: set[HttpConnection] = set()
        self._accepted = 0
        self._arriving: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._log = LogLimit()
        for name in UVICORN_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        uvicorn_logger = logging.getLogger("uvicorn.error")
        filters = (_is_failure, self._log)  # otherwise any client could flood the log
        for each in filters:
            uvicorn_logger.addFilter(each)
        try:
            yield
        finally:
            for each in filters:
                uvicorn_logger.removeFilter(each)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        del sockets
        await self.lifespan.startup()
        self._listen_socket.settimeout(0)
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
        for connection in [each for each in self._connections if each.is_receiving]:
            connection.transport.abort()
        await self._web.state.context.fanout.close()  # otherwise the server would wait for open event streams
        await super().shutdown()
        if self.server_state.tasks:  # they are cancelled; give them time to finish writing
            await asyncio.wait(self.server_state.tasks, timeout=LAST_SECONDS)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped. All connections are closed in any case."""
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
            asyncio.get_running_loop().add_reader(self._listen_socket, self._accept)

    def _end_listening(self) -> None:
        self._is_ending = True
        self._stop_listening()

    def _stop_listening(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listen_socket)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listen_socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            text = "dashboard: cannot accept connections: %s; retrying"
            self._log.log(logger, logging.WARNING, text, error)
            self._stop_listening()
            asyncio.get_running_loop().call_later(ACCEPT_SECONDS, self._listen)
            return
        self._accepted += 1
        if self._is_full:
            self._stop_listening()
            text = "dashboard: all %s connections are in use; new clients wait until one is free"
            self._log.log(logger, logging.WARNING, text, self._accepted)
        arriving = asyncio.create_task(self._connect(accepted), name="trax web connection")
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arriving.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def build() -> HttpConnection:
            return HttpConnection(
                self._limits,
                self._connections,
                self._release_connection,
                lambda: self._is_full,
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
            self._release_connection()

    def _release_connection(self) -> None:
        self._accepted -= 1
        self._listen()

    def _sweep(self) -> None:
        """Close connections that exceeded a timeout, without a response: the client would not read it."""
        now, is_full = asyncio.get_running_loop().time(), self._is_full
        for connection in list(self._connections):
            if slow := connection.overdue_step(now, is_full=is_full):
                text = "dashboard: closed a connection: its %s took too long"
                self._log.log(logger, logging.WARNING, text, slow)
                connection.transport.abort()


def _is_failure(record: logging.LogRecord) -> bool:
    """False for requests cancelled by a server shutdown: they are not failures."""
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
        proxy_headers=False,  # otherwise undeclared proxies would be trusted
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=LAST_SECONDS,
        h11_max_incomplete_event_size=limits.head_bytes,
    )
