"""Engines: how a connection is opened and a transaction begun, per dialect."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import QueuePool, create_engine, event
from sqlalchemy.exc import DisconnectionError

from trax.errors import StoreError
from trax.store.types import SQLITE
from trax.store.url import MEMORY

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

READING: Final = "trax_reading"
BUSY_SECONDS: Final = 30
IDLE_SECONDS: Final = 5
CONNECT_SECONDS: Final = 10
APPLICATION_NAME: Final = "trax"
OLDEST_SQLITE: Final = (3, 35, 0)


def open_engine(url: URL, *, pool_size: int = 5) -> Engine:
    return _sqlite_engine(url, pool_size) if url.drivername == SQLITE else _postgresql_engine(url, pool_size)


def _postgresql_engine(url: URL, pool_size: int) -> Engine:
    options: dict[str, Any] = {
        "prepare_threshold": None,  # a pooler may give each transaction another server connection
        "connect_timeout": CONNECT_SECONDS,
        "application_name": APPLICATION_NAME,
    }
    options = {name: value for name, value in options.items() if name not in url.query}
    engine = create_engine(url, connect_args=options, pool_size=pool_size, max_overflow=pool_size)
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "checkin", _note_use)
    return engine


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _ping_if_idle(connection: Any, record: Any, _proxy: Any) -> None:
    """A connection that lay idle may have died with the server; one just used need not be asked."""
    used_at = record.info.get("used_at")
    if used_at is None or time.monotonic() - used_at < IDLE_SECONDS:
        return
    try:
        connection.execute("")
        connection.rollback()
    except connection.OperationalError as lost:
        raise DisconnectionError from lost


def _sqlite_engine(url: URL, pool_size: int) -> Engine:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(str(part) for part in OLDEST_SQLITE)
        raise StoreError(
            f"this Python uses SQLite {sqlite3.sqlite_version}; Trax needs {needed} or newer. "
            "Use a newer Python build, or PostgreSQL."
        )
    # A database in memory lives in its one connection; waiting for that connection is the lock.
    size = {"pool_size": 1, "max_overflow": 0} if url.database == MEMORY else {"pool_size": pool_size}
    engine = create_engine(
        url,
        poolclass=QueuePool,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
        **size,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: a reader that turns writer half-way would fail instead of waiting."""
    reading = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
