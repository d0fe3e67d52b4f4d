"""A way to PostgreSQL that loses answers to what was executed; and servers that refuse commits."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import make_url
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Generator

READY = b"Z\x00\x00\x00\x05I"
"""How the server ends the answer to a transaction: it is ready, and in no transaction."""


COMMIT = b"COMMIT\x00"
"""How a commit is sent."""


class AnswerProxy:
    """Passes everything on; loses the answer to a transaction that has `marker` in it, once, and cuts.

    The answer is lost when it is complete: the server has committed.
    """

    def __init__(self, url: str, listener: socket.socket) -> None:
        self._url = make_url(url)
        self._listener = listener
        self.marker: bytes | None = None
        self.then: bytes | None = None
        """If set, the transaction is lost that has this, after one that has `marker`."""
        self.lost = 0

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()
        return self._url.set(host=host, port=port).render_as_string(hide_password=False)

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._url.host or "127.0.0.1", self._url.port or 5432))
                is_doomed = threading.Event()
                for pump in (self._pass_on, self._pass_back):
                    threading.Thread(target=pump, args=(client, server, is_doomed), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket, is_doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(1_000_000):
                if self.marker is not None and self.marker in data:
                    self.marker, self.then = self.then, None
                    if self.marker is None:
                        is_doomed.set()
                server.sendall(data)
        _cut(client, server)

    def _pass_back(self, client: socket.socket, server: socket.socket, is_doomed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1_000_000):
                if is_doomed.is_set():
                    if data.endswith(READY):
                        self.lost += 1
                        break
                    continue
                client.sendall(data)
        _cut(client, server)
        client.close()
        server.close()


@contextmanager
def answer_proxy(url: str) -> Generator[AnswerProxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = AnswerProxy(url, listener)
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield proxy
        listener.shutdown(socket.SHUT_RDWR)


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def refused_commits(url: str, table: str, *, code: str = "54000", when: str = "true") -> Generator[None]:
    """Refuse each commit of a transaction that inserts or updates a row of this table, if `when` holds."""
    refuse = f"BEGIN RAISE SQLSTATE '{code}' USING MESSAGE = 'no commit today'; END"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {refuse} $$".encode())
        admin.execute(
            f"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON trax.{table} DEFERRABLE INITIALLY "
            f"DEFERRED FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()".encode()
        )
        yield
        admin.execute("DROP FUNCTION refuse CASCADE")


@contextmanager
def full_notify_queue(url: str) -> Generator[None]:
    """Fill the queue of notifications: a session listens, and stays in a transaction."""
    with ExitStack() as stack:
        listener, sender = (stack.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(2))
        listener.execute("LISTEN somewhere")
        listener.execute("BEGIN")
        listener.execute("SELECT 1")
        with suppress(psycopg.errors.ProgramLimitExceeded):
            while True:
                sender.execute(
                    "SELECT pg_notify('somewhere', repeat('x', 7900) || n) FROM generate_series(1, 9) n"
                )
        yield
        listener.execute("ROLLBACK")
        listener.execute("UNLISTEN *")
        usage = "SELECT pg_notification_queue_usage() > 0"
        until(lambda: sender.execute(usage).fetchone() == (False,))
