"""Serve the dashboard and the HTTP API in a thread of a process that does other work."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from trax.errors import DefinitionError, TraxError
from trax.host.loop import PAUSES
from trax.host.opening import use_web_lane
from trax.web.access import TOKENS, USERS, Access
from trax.web.application import create
from trax.web.connections import WebServer
from trax.web.limits import WebLimits
from trax.web.peer import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from fastapi import FastAPI

    from trax.host.app import Trax

logger = logging.getLogger(__name__)

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
    """An open listening socket; clients wait until it is served. Creating it is what can fail."""

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
    event loop of the jobs (`Trax.at_home`).
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
            f"cannot listen on {listen_address.host}, port {listen_address.port}: {why}; choose another port"
        ) from None
    # A response is sent in two packets; with Nagle's algorithm the second would wait 40 ms for an ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
