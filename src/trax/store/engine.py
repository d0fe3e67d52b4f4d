"""Engines: connections of SQLite, and time limits. The engine of PostgreSQL is in postgresql.py."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import QueuePool, create_engine, event

from trax.errors import StoreError
from trax.store.types import SQLITE
from trax.store.url import MEMORY

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

BUSY_SECONDS: Final = 30
BUSY_PAUSE: Final = 0.01
PREPARE_STATEMENTS: Final = "prepare_statements"
"""`…?prepare_statements=off` in an address, for a pooler that is indistinguishable from PostgreSQL."""
APPLICATION_NAME: Final = "trax"
NAME_SUFFIX: Final = " (trax)"
"""Suffix of the session name if the URL sets its own `application_name`; identifies sessions of Trax."""
MIN_SQLITE_VERSION: Final = (3, 35, 0)
LAST_SECONDS: Final = 10.0
"""How long a response may take while the process shuts down."""


class Timeouts(NamedTuple):
    """Time limits for PostgreSQL: to connect, to acknowledge network traffic, to execute a statement."""

    connect_seconds: float = 10.0
    network_seconds: float = 20.0
    statement_seconds: float | None = 60.0

    @property
    def response_seconds(self) -> float:
        """How long to wait for the response to a statement."""
        return (self.statement_seconds or math.inf) + self.network_seconds

    def connection_options(self) -> dict[str, Any]:
        """Options for libpq: keepalives detect a silent host on a wait, `tcp_user_timeout` on a send."""
        seconds = max(1, round(self.network_seconds))
        interval = max(1, seconds // 6)
        return {
            "connect_timeout": math.ceil(self.connect_seconds),
            "keepalives": 1,
            "keepalives_idle": max(1, seconds // 2),
            "keepalives_interval": interval,
            "keepalives_count": max(1, (seconds - seconds // 2) // interval),
            "tcp_user_timeout": 1000 * seconds,
        }


class WaitLimits:
    """How long the connections of a store wait for a response; read by all of them while they wait."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.max_seconds = math.inf
        self.lost_at = -math.inf
        """When a connection was last lost: others, also of other pools, may be lost too."""

    def seconds_for(self, override: float | None) -> float:
        return min(self.timeouts.response_seconds if override is None else override, self.max_seconds)


def open_engine(url: URL, *, pool_size: int = 5, wait_limits: WaitLimits | None = None) -> Engine:
    if url.drivername == SQLITE:
        return _sqlite_engine(url, pool_size)
    from trax.store.postgresql import postgresql_engine

    return postgresql_engine(url, pool_size, wait_limits or WaitLimits(Timeouts()))


def _sqlite_engine(url: URL, pool_size: int) -> Engine:
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        needed = ".".join(str(part) for part in MIN_SQLITE_VERSION)
        raise StoreError(
            f"this Python uses SQLite {sqlite3.sqlite_version}; Trax needs {needed} or newer. "
            "Use a newer Python build, or PostgreSQL."
        )
    # A database in memory has one connection; waiting for it is the lock.
    size = {"pool_size": 1, "max_overflow": 0} if url.database == MEMORY else {"pool_size": pool_size}
    engine = create_engine(
        url,
        poolclass=QueuePool,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
        hide_parameters=True,
        **size,
    )
    event.listen(engine, "do_connect", _create_private_file)
    event.listen(engine, "connect", _prepare_sqlite)

    return engine


def _create_private_file(
    _dialect: object, _record: object, arguments: list[Any], _options: dict[str, Any]
) -> None:
    """Create a new database file for its owner only; SQLite's other files get the same permissions."""
    path = str(arguments[0])
    if path != MEMORY and not path.startswith("file:"):
        with suppress(OSError):  # it exists, or SQLite says what is wrong
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `Store` sends BEGIN
    _enable_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, with retries: if several do so at once, SQLite fails some instead of waiting."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > until:
                raise
            time.sleep(BUSY_PAUSE)
        else:
            return
