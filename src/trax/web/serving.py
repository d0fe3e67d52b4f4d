"""The server of the control room, beside the other things a process does."""

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
"""How long the end of the process waits for the dashboard."""
BACKLOG: Final = 128
WHY: Final = {
    errno.EADDRINUSE: "something listens there already",
    errno.EACCES: "this user may not listen there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


@dataclass(frozen=True, slots=True)
class Door:
    """Where the control room can be reached."""

    port: int = PORT
    host: str = LOOPBACK


class Doorway:
    """A door that stands open: whoever knocks waits until somebody serves. Opening it is what can fail."""

    def __init__(self, door: Door, access: Access | None = None, limits: WebLimits | None = None) -> None:
        self.access = access or Access.from_environment()
        self.limits = (limits or WebLimits.from_environment()).for_process()
        check_door(door, self.access)
        self._listening = _open_socket(door)

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def sign_in_link(self, app: Trax) -> str | None:
        """A link that signs one browser in, once, where nobody has said who may enter."""
        if self.access.is_configured:
            return None
        return f"{self.address}/login?token={await app.sessions.create_link()}"

    @asynccontextmanager
    async def served(self, app: Trax, **options: Any) -> AsyncGenerator[str]:
        """Serve the control room of an app while the block lasts; gives its address."""
        build = partial(create, app, access=self.access, limits=self.limits, **options)
        thread = WebThread(build, self._listening, self.limits)
        thread.start()
        try:
            yield self.address
        finally:
            await asyncio.to_thread(thread.stop)
            self._listening.close()


class WebThread:
    """The control room in a thread, an event loop and a lane of the store of its own.

    So no visitor delays a beat or a job. What it asks of the app may be asked from any thread; code of the
    user runs where the jobs do (`Trax.at_home`).
    """

    def __init__(self, build: Callable[[], FastAPI], listening: socket.socket, limits: WebLimits) -> None:
        self._build = build
        self._web = build()  # what is wrong with its options is said to the caller
        self._listening = listening
        self._limits = limits
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trax web", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let requests end, but not for long: a handler that blocks is left behind."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            text = "the dashboard did not stop within %s s: a request blocks it, and is left behind"
            logger.warning(text, STOP_SECONDS)

    def _run(self) -> None:
        use_web_lane()
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            server = WebServer(self._web, self._listening, self._limits, self._stopping)
            failure: BaseException | None = None
            try:
                asyncio.run(server.serve())
            except BaseException as error:  # noqa: BLE001 - whatever it was, the dashboard comes back
                failure = error
            if self._stopping.is_set() and failure is None:
                return
            text = "the dashboard failed, jobs go on; it is started again in %s s"
            logger.error(text, pause, exc_info=failure)
            if self._stopping.wait(pause):
                return
            self._web = self._build()  # what it held belonged to the loop that is gone


def check_door(door: Door, access: Access) -> None:
    """A door that others can reach needs somebody who may enter."""
    if is_loopback(door.host):
        return
    if access.insecure_local:
        raise DefinitionError(
            "insecure_local makes every process of this machine an operator, and others can reach "
            f"{door.host}: listen on {LOOPBACK}, or leave it out and say who may enter"
        )
    if access.is_configured:
        return
    raise DefinitionError(
        f"the control room would be open to anybody who reaches {door.host}: say who may enter with "
        f"${TOKENS} (name:role:secret) or ${USERS} (name:role:hash, see `trax dashboard --hash-password`), "
        f"or listen on {LOOPBACK} only"
    )


def _open_socket(door: Door) -> socket.socket:
    try:
        found = socket.getaddrinfo(door.host, door.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = WHY.get(number or 0, str(error))
        raise TraxError(
            f"cannot listen on {door.host}, port {door.port}: {why}; choose another port"
        ) from None
    # An answer is sent in two pieces; else the second would wait 40 ms for a word about the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
