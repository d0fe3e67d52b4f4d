"""The server of the control room, inside a process that does other things, too."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from trax.errors import DefinitionError, TraxError
from trax.web.access import TOKENS, USERS, Access
from trax.web.application import create
from trax.web.peer import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from trax.host.app import Trax

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8080
LAST_SECONDS: Final = 3
"""How long requests may take to end once the server ends."""
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

    def __init__(self, door: Door, access: Access | None = None) -> None:
        self.access = access or Access.from_environment()
        check_door(door, self.access)
        self._listening = _listening(door)

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
        web = create(app, access=self.access, **options)
        server = _Server(_config(web))
        serving = asyncio.create_task(server.serve(sockets=[self._listening]), name="trax web")
        try:
            yield self.address
        finally:
            await web.state.room.fanout.close()  # or the server would wait for those who watch
            server.should_exit = True
            await serving


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


def _listening(door: Door) -> socket.socket:
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


def _config(web: Any) -> uvicorn.Config:
    return uvicorn.Config(
        web,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LAST_SECONDS,
        ws="none",
        proxy_headers=False,  # or a proxy that nobody declared would be believed
    )


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the process: it ends when it is told to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        for name in ("uvicorn", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.WARNING)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
