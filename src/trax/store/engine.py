"""Engines: open connections and begin transactions, per dialect, with time limits for PostgreSQL.

Three limits keep a lost server from blocking a thread for ever. The operating system closes a connection
whose peer is silent (keepalives, `tcp_user_timeout`). The server cancels a statement that takes too long
(`statement_timeout`, where the session is ours). And a connection waits for a response no longer than both
together: a proxy or a firewall may keep a connection alive whose server is gone.
"""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from sqlalchemy import QueuePool, create_engine, event
from sqlalchemy.exc import DisconnectionError

from trax.errors import StoreError
from trax.store.dialect import BROAD_PLAN_SETTINGS
from trax.store.types import SQLITE
from trax.store.url import MEMORY

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import URL, Connection, Engine

READ_ONLY_OPTION: Final = "trax_reading"
BUSY_SECONDS: Final = 30
BUSY_PAUSE: Final = 0.01
IDLE_SECONDS: Final = 5
PREPARE_STATEMENTS: Final = "prepare_statements"
"""`…?prepare_statements=off` in an address, for a pooler that is indistinguishable from PostgreSQL."""
PREPARE_AFTER: Final = 5
MAX_PREPARED: Final = 200
APPLICATION_NAME: Final = "trax"
NAME_SUFFIX: Final = " (trax)"
"""Suffix of the session name if the URL sets its own `application_name`; identifies sessions of Trax."""
NAME_BYTES: Final = 63
MIN_SQLITE_VERSION: Final = (3, 35, 0)
STATEMENT_TIMEOUT: Final = "statement_timeout"
LAST_SECONDS: Final = 10.0
LAST_CONNECT_SECONDS: Final = 2
"""How long a response and a connection may take while the process shuts down."""


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


class PostgresqlConnection(psycopg.Connection[Any]):
    """A connection that closes itself when a response takes too long, even while a thread waits for it."""

    wait_limits = WaitLimits(Timeouts())
    max_wait_seconds: float | None = None
    """Overrides the usual wait; infinite after `dialect.lift_limits`."""

    def __del__(self, _warn: Any = None) -> None:
        """Close the connection: SQLAlchemy leaves it open if its first statements fail."""
        with suppress(Exception):
            self.close()

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._watch(gen), *args, **kwargs)

    def _watch(self, inner: Any) -> Generator[Any, Any, Any]:
        """Wrap the driver's wait, which wakes ten times a second, and stop it after the limit."""
        last_ready_at = time.monotonic()
        try:
            waiting_for = next(inner)
            while True:
                ready = yield waiting_for
                if ready:
                    last_ready_at = time.monotonic()
                elif (silent := time.monotonic() - last_ready_at) >= self.wait_limits.seconds_for(
                    self.max_wait_seconds
                ):
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"no response for {silent:.1f} s; the connection was closed"
                    )
                waiting_for = inner.send(ready)
        except StopIteration as done:
            return done.value


def open_engine(url: URL, *, pool_size: int = 5, wait_limits: WaitLimits | None = None) -> Engine:
    if url.drivername == SQLITE:
        return _sqlite_engine(url, pool_size)
    return _postgresql_engine(url, pool_size, wait_limits or WaitLimits(Timeouts()))


def session_name(url: URL) -> str:
    """The name of our sessions in `pg_stat_activity`, by which other servers recognise them."""
    name = str(url.query.get("application_name", ""))
    if name in {"", APPLICATION_NAME}:
        return APPLICATION_NAME
    escaped = name.encode(
        "ascii", "replace"
    ).decode()  # the server escapes other characters, which makes the name longer
    return escaped[: NAME_BYTES - len(NAME_SUFFIX)] + NAME_SUFFIX


def _postgresql_engine(url: URL, pool_size: int, wait_limits: WaitLimits) -> Engine:
    options: dict[str, Any] = {
        "prepare_threshold": None,  # a pooler may give each transaction another server connection
        **wait_limits.timeouts.connection_options(),
    }
    keeps_plans = url.query.get(PREPARE_STATEMENTS) != "off"
    name = session_name(url)
    url = url.difference_update_query([PREPARE_STATEMENTS, "application_name"])
    options = {name: value for name, value in options.items() if name not in url.query}
    engine = create_engine(
        url,
        connect_args={**options, "application_name": name},
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_use_lifo=True,
        hide_parameters=True,
    )

    def connect(_dialect: object, _record: object, args: Any, kwargs: dict[str, Any]) -> PostgresqlConnection:
        if wait_limits.max_seconds < math.inf:
            kwargs = kwargs | {"connect_timeout": LAST_CONNECT_SECONDS}
        connection = PostgresqlConnection.connect(*args, **kwargs)
        connection.wait_limits = wait_limits
        return connection

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "invalidate", _note_loss)
    if keeps_plans:
        event.listen(engine, "connect", keep_plans)
        if STATEMENT_TIMEOUT not in str(url.query.get("options", "")):
            event.listen(engine, "connect", limit_statements)
    return engine


def keep_plans(connection: Any, _record: Any) -> None:
    """Let PostgreSQL keep prepared statements and their plans: for small statements, most of the cost.

    A plan made for an empty table is kept when the table fills, so plans must suit a full table from the
    start: index scans, which is all that most statements need. Statements that read much of a table call
    `dialect.allow_broad_plans`.

    Not behind a pooler, which may give each transaction another server connection: there, the backend pid
    differs from the one reported at connect.
    """
    [[backend_pid]] = connection.execute("SELECT pg_backend_pid()").fetchall()
    if backend_pid == connection.info.backend_pid:
        connection.execute(
            ";".join(["SET TimeZone = 'UTC'", *(f"SET {name} = off" for name in BROAD_PLAN_SETTINGS)])
        )
        connection.prepare_threshold = PREPARE_AFTER
        connection.prepared_max = MAX_PREPARED
    connection.commit()


def limit_statements(connection: Any, _record: Any) -> None:
    """Set `statement_timeout` where the session is ours alone; see `keep_plans`."""
    seconds = connection.wait_limits.timeouts.statement_seconds
    if connection.prepare_threshold is not None and seconds is not None:
        connection.execute(f"SET {STATEMENT_TIMEOUT} = {math.ceil(seconds * 1000)}")
        connection.commit()


def _note_use(connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()
    if connection is not None:
        connection.max_wait_seconds = None


def _note_loss(connection: Any, _record: Any, _error: Any) -> None:
    connection.wait_limits.lost_at = time.monotonic()


def _ping_if_idle(connection: Any, record: Any, _proxy: Any) -> None:
    """Ping a connection that was idle: it may be lost. One that was just used needs no ping."""
    used_at = record.info.get("used_at")
    if used_at is None or used_at > max(connection.wait_limits.lost_at, time.monotonic() - IDLE_SECONDS):
        return
    connection.max_wait_seconds = connection.wait_limits.timeouts.network_seconds
    try:
        connection.execute("")
        connection.rollback()
    except connection.OperationalError as lost:
        raise DisconnectionError from lost
    finally:
        connection.max_wait_seconds = None


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
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN
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


def _begin_sqlite(connection: Connection) -> None:
    """Take the write lock at BEGIN: a reader that turns into a writer would fail instead of waiting."""
    reading = connection.get_execution_options().get(READ_ONLY_OPTION, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
