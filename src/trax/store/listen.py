"""Receive notifications of other processes on a dedicated LISTEN connection.

LISTEN belongs to a session, so it cannot share the connections of transactions: those may come from a pooler
that gives each transaction another session.
"""

from __future__ import annotations

import selectors
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from trax.store.dialect import CHANNEL
from trax.store.engine import PREPARE_STATEMENTS, Timeouts, WaitLimits
from trax.store.faults import translate_errors
from trax.store.types import SQLITE
from trax.store.url import display_url, parse_url

if TYPE_CHECKING:
    from collections.abc import Generator

    import psycopg

LISTENER_NAME: Final = "trax listening"
"""The name of the connection in `pg_stat_activity`."""


def can_listen(address: str) -> bool:
    """Whether this database has LISTEN and NOTIFY; SQLite does not."""
    return parse_url(address).drivername != SQLITE


@contextmanager
def open_connection(address: str, timeouts: Timeouts | None = None) -> Generator[psycopg.Connection[Any]]:
    """Open a dedicated connection with autocommit."""
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    from trax.store.postgresql import READ_COMMITTED, PostgresqlConnection, has_own_session, set_for_session

    url = parse_url(address).difference_update_query([PREPARE_STATEMENTS])
    timeouts = timeouts or Timeouts()
    dialect: Any = PGDialect_psycopg()
    args, options = dialect.create_connect_args(url)
    defaults: dict[str, Any] = {**timeouts.connection_options(), "application_name": LISTENER_NAME}
    with (
        translate_errors(display_url(url)),
        PostgresqlConnection.connect(*args, **(defaults | options), autocommit=True) as connection,
    ):
        connection.wait_limits = WaitLimits(timeouts)
        if has_own_session(connection):
            set_for_session(connection, READ_COMMITTED)
        yield connection


class Waker:
    """Interrupts a wait of the listener from any thread."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()

    def wake(self) -> None:
        self._sender.send(b"!")

    def fileno(self) -> int:
        return self._receiver.fileno()

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


class ListenConnection:
    """An open LISTEN connection. It belongs to one thread."""

    def __init__(self, connection: psycopg.Connection[Any], waker: Waker, address: str) -> None:
        self._connection = connection
        self._address = address
        self._payloads: list[str] = []
        connection.add_notify_handler(lambda notice: self._payloads.append(notice.payload))
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection.fileno(), selectors.EVENT_READ)
        self._selector.register(waker, selectors.EVENT_READ)

    @classmethod
    @contextmanager
    def open(cls, address: str, waker: Waker, timeouts: Timeouts | None = None) -> Generator[Self]:
        with open_connection(address, timeouts) as connection:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            listener = cls(connection, waker, display_url(parse_url(address)))
            try:
                yield listener
            finally:
                listener._selector.close()

    def receive(self, seconds: float) -> list[str]:
        """Wait for notifications or a wake-up, at most `seconds`; returns the payloads.

        After a wait without any, the connection is pinged.
        """
        with translate_errors(self._address):
            if not self._selector.select(seconds):
                self.ping()
            return self._read()

    def ping(self) -> None:
        """Fail if the server does not respond. What arrives before its response is kept for `receive`."""
        self._connection.execute("SELECT 1")

    def _read(self) -> list[str]:
        """The payloads that have arrived, some of them during a ping.

        The driver's `notifies` would take several times as long.
        """
        pgconn = self._connection.pgconn
        pgconn.consume_input()
        while notice := pgconn.notifies():
            self._payloads.append(notice.extra.decode())
        payloads, self._payloads = self._payloads, []
        return payloads
