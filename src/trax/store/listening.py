"""Hearing what other processes announce, on a connection of its own.

LISTEN belongs to a session, so it cannot share the connections of the transactions: those may come from a
pooler that gives each transaction another session.
"""

from __future__ import annotations

import selectors
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from trax.store.dialect import CHANNEL
from trax.store.engine import PREPARE_STATEMENTS, LimitedConnection, Patience, Timeouts
from trax.store.faults import translated
from trax.store.types import SQLITE
from trax.store.url import parsed_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Generator

    import psycopg

NAME: Final = "trax listening"
"""What the connection is called in `pg_stat_activity`."""


def can_listen(address: str) -> bool:
    """Whether this database tells anybody anything; SQLite does not."""
    return parsed_url(address).drivername != SQLITE


@contextmanager
def connected(address: str, timeouts: Timeouts | None = None) -> Generator[psycopg.Connection[Any]]:
    """A connection of its own, which commits by itself."""
    url = parsed_url(address).difference_update_query([PREPARE_STATEMENTS])
    timeouts = timeouts or Timeouts()
    dialect: Any = PGDialect_psycopg()
    words, options = dialect.create_connect_args(url)
    wanted: dict[str, Any] = {**timeouts.connection_options(), "application_name": NAME}
    with (
        translated(shown_url(url)),
        LimitedConnection.connect(*words, **(wanted | options), autocommit=True) as connection,
    ):
        connection.patience = Patience(timeouts)
        yield connection


class Bell:
    """Ends a wait from any thread."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()

    def ring(self) -> None:
        self._outside.send(b"!")

    def fileno(self) -> int:
        return self._inside.fileno()

    def close(self) -> None:
        self._inside.close()
        self._outside.close()


class Line:
    """An open connection that listens. It belongs to one thread."""

    def __init__(self, connection: psycopg.Connection[Any], bell: Bell, address: str) -> None:
        self._connection = connection
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection.fileno(), selectors.EVENT_READ)
        self._selector.register(bell, selectors.EVENT_READ)

    @classmethod
    @contextmanager
    def opened(cls, address: str, bell: Bell, timeouts: Timeouts | None = None) -> Generator[Self]:
        with connected(address, timeouts) as connection:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            line = cls(connection, bell, shown_url(parsed_url(address)))
            try:
                yield line
            finally:
                line._selector.close()

    def heard(self, seconds: float) -> list[str]:
        """Wait until somebody says something or the bell rings, at most so long; returns what was said.

        A line that was silent for that long is asked whether it still works.
        """
        with translated(self._address):
            if not self._selector.select(seconds):
                self._connection.execute("SELECT 1")
            return [notice.payload for notice in self._connection.notifies(timeout=0)]
