"""Engines: how a connection is opened and a transaction begun, per dialect, and how long PostgreSQL may take.

Three limits keep a lost server from holding a thread for ever. The operating system gives up a connection
whose other end is silent (keepalives, `tcp_user_timeout`). The server ends a statement that takes too long,
where a session can be told so. And whatever stands between, a connection waits no longer than both together:
a proxy or a firewall may keep a connection alive whose server is gone.
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
from trax.store.dialect import WIDE_WAYS
from trax.store.types import SQLITE
from trax.store.url import MEMORY

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import URL, Connection, Engine

READING: Final = "trax_reading"
BUSY_SECONDS: Final = 30
BUSY_PAUSE: Final = 0.01
IDLE_SECONDS: Final = 5
PREPARE_STATEMENTS: Final = "prepare_statements"
"""`…?prepare_statements=off` in an address: for a pooler that passes itself off as PostgreSQL."""
PREPARE_AFTER: Final = 5
PREPARED_AT_MOST: Final = 200
APPLICATION_NAME: Final = "trax"
MARK: Final = " (trax)"
"""What the name of a session ends with whose URL gives it another name: nobody else's does."""
NAME_BYTES: Final = 63
OLDEST_SQLITE: Final = (3, 35, 0)
STATEMENT_TIMEOUT: Final = "statement_timeout"
LAST_SECONDS: Final = 10.0
LAST_CONNECT_SECONDS: Final = 2
"""How long an answer and a connection may take once the process is to end."""


class Timeouts(NamedTuple):
    """How long PostgreSQL may take: to connect, to show any sign of life, to answer a statement."""

    connect_seconds: float = 10.0
    network_seconds: float = 20.0
    statement_seconds: float | None = 60.0

    @property
    def answer_seconds(self) -> float:
        """After how long no answer will come any more."""
        return (self.statement_seconds or math.inf) + self.network_seconds

    def connection_options(self) -> dict[str, Any]:
        """What libpq must know. Keepalives notice a silent host when we wait, the other one when we send."""
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


class Patience:
    """How long the connections of a store wait for an answer; all of them look at it while they wait."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.at_most = math.inf
        self.lost_at = -math.inf
        """When a connection was last found to be lost: then others may be, also those of another pool."""

    def allowed(self, wanted: float | None) -> float:
        return min(self.timeouts.answer_seconds if wanted is None else wanted, self.at_most)


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is given up when an answer takes too long, even while a thread waits for it."""

    patience = Patience(Timeouts())
    wanted_seconds: float | None = None
    """How long it waits in place of what is usual; `dialect.lift_limits` says infinitely."""

    def __del__(self, _warn: Any = None) -> None:
        """SQLAlchemy forgets, and leaves open, a connection whose first statements fail."""
        with suppress(Exception):
            self.close()

    def wait(self, gen: Any, *how: Any, **more: Any) -> Any:
        return super().wait(self._watch(gen), *how, **more)

    def _watch(self, inner: Any) -> Generator[Any, Any, Any]:
        """Pass on what the driver waits for. It comes by ten times a second, whether there is news or not."""
        heard_at = time.monotonic()
        try:
            wanted = next(inner)
            while True:
                ready = yield wanted
                if ready:
                    heard_at = time.monotonic()
                elif (silent := time.monotonic() - heard_at) >= self.patience.allowed(self.wanted_seconds):
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer for {silent:.1f} s; the connection was closed")
                wanted = inner.send(ready)
        except StopIteration as done:
            return done.value


def open_engine(url: URL, *, pool_size: int = 5, patience: Patience | None = None) -> Engine:
    if url.drivername == SQLITE:
        return _sqlite_engine(url, pool_size)
    return _postgresql_engine(url, pool_size, patience or Patience(Timeouts()))


def session_name(url: URL) -> str:
    """What our sessions are called in `pg_stat_activity`, so that all servers know them as ours."""
    given = str(url.query.get("application_name", ""))
    if given in {"", APPLICATION_NAME}:
        return APPLICATION_NAME
    spelled = given.encode("ascii", "replace").decode()  # as the server would, but that makes it longer
    return spelled[: NAME_BYTES - len(MARK)] + MARK


def _postgresql_engine(url: URL, pool_size: int, patience: Patience) -> Engine:
    options: dict[str, Any] = {
        "prepare_threshold": None,  # a pooler may give each transaction another server connection
        **patience.timeouts.connection_options(),
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

    def connect(_dialect: object, _record: object, words: Any, wanted: dict[str, Any]) -> LimitedConnection:
        if patience.at_most < math.inf:
            wanted = wanted | {"connect_timeout": LAST_CONNECT_SECONDS}
        connection = LimitedConnection.connect(*words, **wanted)
        connection.patience = patience
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


def limit_statements(connection: Any, _record: Any) -> None:
    """Tell the server how long a statement may take, where the session is ours alone: see `keep_plans`."""
    seconds = connection.patience.timeouts.statement_seconds
    if connection.prepare_threshold is not None and seconds is not None:
        connection.execute(f"SET {STATEMENT_TIMEOUT} = {math.ceil(seconds * 1000)}")
        connection.commit()


def _note_use(connection: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()
    if connection is not None:
        connection.wanted_seconds = None


def _note_loss(connection: Any, _record: Any, _error: Any) -> None:
    connection.patience.lost_at = time.monotonic()


def _ping_if_idle(connection: Any, record: Any, _proxy: Any) -> None:
    """A connection that lay idle may have died with the server; one just used need not be asked."""
    used_at = record.info.get("used_at")
    if used_at is None or used_at > max(connection.patience.lost_at, time.monotonic() - IDLE_SECONDS):
        return
    connection.wanted_seconds = connection.patience.timeouts.network_seconds
    try:
        connection.execute("")
        connection.rollback()
    except connection.OperationalError as lost:
        raise DisconnectionError from lost
    finally:
        connection.wanted_seconds = None


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
        hide_parameters=True,
        **size,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Of several that switch a new file to WAL at once, SQLite refuses some instead of letting them wait."""
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
    """Writers take the lock at once: a reader that turns writer half-way would fail instead of waiting."""
    reading = connection.get_execution_options().get(READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
