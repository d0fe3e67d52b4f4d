"""Engines: how a connection is opened and a transaction begun, per dialect."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import QueuePool, create_engine, event
from sqlalchemy.exc import DisconnectionError

from trax.errors import StoreError
from trax.store.dialect import WIDE_WAYS
from trax.store.types import SQLITE
from trax.store.url import MEMORY

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

READING: Final = "trax_reading"
BUSY_SECONDS: Final = 30
IDLE_SECONDS: Final = 5
CONNECT_SECONDS: Final = 10
PREPARE_STATEMENTS: Final = "prepare_statements"
"""`…?prepare_statements=off` in an address: for a pooler that passes itself off as PostgreSQL."""
PREPARE_AFTER: Final = 5
PREPARED_AT_MOST: Final = 200
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
    keeps_plans = url.query.get(PREPARE_STATEMENTS) != "off"
    url = url.difference_update_query([PREPARE_STATEMENTS])
    options = {name: value for name, value in options.items() if name not in url.query}
    engine = create_engine(
        url, connect_args=options, pool_size=pool_size, max_overflow=pool_size, pool_use_lifo=True
    )
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "checkin", _note_use)
    if keeps_plans:
        event.listen(engine, "connect", keep_plans)
    return engine


def keep_plans(connection: Any, _record: Any) -> None:
    """Let PostgreSQL keep what it has parsed and planned: for small statements that is most of their cost.

    A plan made while a table was empty is kept when the table fills, so the plans must be those of a full
    one from the start: by key and in the order of an index, which is all that most statements need. Those
    that read widely say so (`dialect.plan_freely`).

    Not behind a pooler, which may give each transaction another server: the process that answers there is
    not the one that greeted us.
    """
    [[backend_pid]] = connection.execute("SELECT pg_backend_pid()").fetchall()
    if backend_pid == connection.info.backend_pid:
        connection.execute(";".join(["SET TimeZone = 'UTC'", *(f"SET {name} = off" for name in WIDE_WAYS)]))
        connection.prepare_threshold = PREPARE_AFTER
        connection.prepared_max = PREPARED_AT_MOST
    connection.commit()


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
