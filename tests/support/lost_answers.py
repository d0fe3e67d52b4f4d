"""A way to PostgreSQL that loses answers to what was executed; and servers that refuse commits."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
from tests.support.chaos_proxy import Proxy, proxy_to
from tests.support.waiting import until
from typing_extensions import override

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator
    from contextlib import AbstractContextManager

READY = b"Z\x00\x00\x00\x05I"
"""How the server ends the answer to a transaction: it is ready, and in no transaction."""


COMMIT = b"COMMIT\x00"
"""How a commit is sent."""


class AnswerProxy(Proxy):
    """Passes everything on; loses the answer to a transaction that has `marker` in it, once, and cuts.

    The answer is lost when it is complete: the server has committed.
    """

    def __init__(self, url: str, listener: socket.socket) -> None:
        super().__init__(url, listener)
        self.marker: bytes | None = None
        self.then: bytes | None = None
        """If set, the transaction is lost that has this, after one that has `marker`."""
        self._doomed: set[socket.socket] = set()

    @override
    def note_sent(self, client: socket.socket, data: bytes) -> None:
        if self.marker is not None and self.marker in data:
            self.marker, self.then = self.then, None
            if self.marker is None:
                self._doomed.add(client)

    @override
    def is_dropped(self, client: socket.socket) -> bool:
        return client in self._doomed

    @override
    def is_lost(self, client: socket.socket, data: bytes) -> bool:
        is_complete = client in self._doomed and data.endswith(READY)
        self.lost += is_complete
        return is_complete


def answer_proxy(url: str) -> AbstractContextManager[AnswerProxy]:
    return proxy_to(url, AnswerProxy)


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
