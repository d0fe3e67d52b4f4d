"""A way to PostgreSQL on which answers get lost: those to commits, or all of them from some moment on."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import make_url

if TYPE_CHECKING:
    from collections.abc import Generator

CHUNK_BYTES = 1_000_000
COMMITTED = b"COMMIT\x00"
"""How the server says so: the tag of a command that is complete."""


class Proxy:
    """Passes everything on, both ways. Told to, it cuts connections at every so-manieth commit.

    Or it becomes a black hole: connections stay, new ones are made, and nothing comes of what is sent. Or it
    stops forwarding for a while: what was sent meanwhile arrives late, as TCP sends it again, even if whoever
    sent it has given up since. Or it leads to another server from some moment on.
    """

    def __init__(self, url: str, listener: socket.socket) -> None:
        self._url = make_url(url)
        self._listener = listener
        self._commits = 0
        self.every: int | None = None
        self.lost = 0
        self.is_black_hole = False
        self._swallowed: list[socket.socket] = []
        self._flows = threading.Event()
        self._flows.set()
        self._ends: set[socket.socket] = set()

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return self._url.set(host=host, port=port).render_as_string(hide_password=False)

    @property
    def swallowed(self) -> int:
        """How many have tried to connect to the black hole."""
        return len(self._swallowed)

    @contextmanager
    def stalled(self) -> Generator[None]:
        """Forward nothing during this block."""
        self._flows.clear()
        yield
        self._flows.set()

    def lead_to(self, url: str) -> None:
        """Cut every connection, and take new ones to this server."""
        self._url = make_url(url)
        for end in list(self._ends):
            _cut(end)

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        if self.is_black_hole:
            self._swallowed.append(client)
            return
        try:
            server = socket.create_connection((self._url.host or "127.0.0.1", self._url.port or 5432))
        except OSError:  # there is no server now, so there is none for the client
            client.close()
            return
        self._ends |= {client, server}
        for pump in (self._pass_on, self._pass_back):
            threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(CHUNK_BYTES):
                self._flows.wait()
                self.note_sent(client, data)
                if not self.is_black_hole:
                    server.sendall(data)
        _cut(client, server)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while (data := server.recv(CHUNK_BYTES)) and not self.is_lost(client, data):
                self._flows.wait()
                if not self.is_black_hole and not self.is_dropped(client):
                    client.sendall(data)
        _cut(client, server)
        self._ends -= {client, server}
        client.close()
        server.close()

    def end(self) -> None:
        self._flows.set()
        for client in self._swallowed:
            client.close()

    def note_sent(self, client: socket.socket, data: bytes) -> None:
        """Look at what a client sends, before it is passed on."""

    def is_dropped(self, client: socket.socket) -> bool:  # noqa: ARG002 - for subclasses
        """Whether a part of an answer is kept from this client."""
        return False

    def is_lost(self, client: socket.socket, data: bytes) -> bool:  # noqa: ARG002 - for subclasses
        """Whether to cut the connection instead of passing this on."""
        if COMMITTED not in data or self.every is None:
            return False
        self._commits += 1
        is_lost = self._commits % self.every == 0
        self.lost += is_lost
        return is_lost


AnyProxy = TypeVar("AnyProxy", bound=Proxy)


@contextmanager
def proxy_to(url: str, kind: type[AnyProxy] = Proxy) -> Generator[AnyProxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = kind(url, listener)
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)
        proxy.end()


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
