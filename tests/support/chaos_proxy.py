"""A way to PostgreSQL on which answers to commits get lost: it is committed, and nobody hears of it."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sqlalchemy import make_url

if TYPE_CHECKING:
    from collections.abc import Generator

COMMITTED = b"COMMIT\x00"
"""How the server says so: the tag of a command that is complete."""


class Proxy:
    """Passes everything on, both ways. Told to, it cuts connections at every so-manieth commit."""

    def __init__(self, url: str, listener: socket.socket) -> None:
        self._url = make_url(url)
        self._listener = listener
        self._commits = 0
        self.every: int | None = None
        self.lost = 0

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return self._url.set(host=host, port=port).render_as_string(hide_password=False)

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        server = socket.create_connection((self._url.host or "127.0.0.1", self._url.port or 5432))
        for pump in (self._pass_on, self._pass_back):
            threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
        _cut(client, server)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while (data := server.recv(65_536)) and not self._is_lost(data):
                client.sendall(data)
        _cut(client, server)
        client.close()
        server.close()

    def _is_lost(self, data: bytes) -> bool:
        if COMMITTED not in data or self.every is None:
            return False
        self._commits += 1
        is_lost = self._commits % self.every == 0
        self.lost += is_lost
        return is_lost


@contextmanager
def proxy_to(url: str) -> Generator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = Proxy(url, listener)
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
