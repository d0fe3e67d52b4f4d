"""The engine of PostgreSQL: its connections, with time limits, plans and pings.

Three limits keep a lost server from blocking a thread forever. The operating system closes a connection whose
peer is silent (keepalives, `tcp_user_timeout`). The server cancels a statement that takes too long
(`statement_timeout`, where the session is ours). And a connection waits for a response no longer than both
together: a proxy or a firewall may keep a connection alive whose server is gone.
"""

from __future__ import annotations

import math
import os
import socket
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DisconnectionError

from trax.forks import bind_to_process
from trax.store.dialect import BROAD_PLAN_SETTINGS
from trax.store.engine import APPLICATION_NAME, NAME_SUFFIX, PREPARE_STATEMENTS, Timeouts, WaitLimits
from trax.store.pipeline import AT_COMMIT, check_committed

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from sqlalchemy import URL, Engine

IDLE_SECONDS: Final = 5
PREPARE_AFTER: Final = 5
MAX_PREPARED: Final = 200
NAME_BYTES: Final = 63
STATEMENT_TIMEOUT: Final = "statement_timeout"
READ_COMMITTED: Final = {"default_transaction_isolation": "'read committed'"}
"""What waits for a lock must see what was committed meanwhile, whatever the database's default is.

A transaction names its level when it begins; a statement that is one by itself takes that of the session.
"""
LAST_CONNECT_SECONDS: Final = 2
"""How long a connection may take while the process shuts down."""


class PostgresqlCursor(psycopg.Cursor[Any]):
    """A cursor that notes on an error of an implicit commit that it is one."""

    def _check_results(self, results: list[Any]) -> None:
        """The server responds to a statement of its own twice, if its implicit commit fails."""
        try:
            super()._check_results(results)
        except psycopg.Error as error:
            if len(results) > 1:
                error.add_note(AT_COMMIT)
            raise


class PostgresqlConnection(psycopg.Connection[Any]):
    """A connection that closes itself when a response takes too long, even while a thread waits for it.

    It believes a commit only if the server says so.
    """

    wait_limits = WaitLimits(Timeouts())
    max_wait_seconds: float | None = None
    """Overrides the usual wait; infinite after `dialect.lift_limits`."""
    is_own_session = False
    """Whether all its transactions run in one session, so that settings of the session hold."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """Put a dead socket in the place of the parent's: closing this connection must not end its session."""
        with suppress(Exception):  # it is closed
            number = self.pgconn.socket
            dead, peer = socket.socketpair()
            peer.close()
            os.dup2(dead.fileno(), number, inheritable=False)
            dead.close()

    def __del__(self, _warn: Any = None) -> None:
        """Close the connection: SQLAlchemy leaves it open if its first statements fail."""
        with suppress(Exception):
            self.close()

    def commit(self) -> None:
        if self.pgconn.transaction_status not in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            super().commit()  # there is nothing to commit, or the connection is lost
            return
        with self.cursor() as cursor:
            try:
                cursor.execute("COMMIT", prepare=False)
            except psycopg.Error as error:
                error.add_note(AT_COMMIT)
                raise
            check_committed(cursor)

    @property
    def is_stuck(self) -> bool:
        """Whether a pipeline could not be ended: the session has ended, but the socket is not closed yet."""
        return self._pipeline is None and self.pgconn.pipeline_status != PipelineStatus.OFF

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            waiting_for = next(gen)
        except StopIteration as done:  # nothing to wait for: for example, a rollback without a transaction
            return done.value
        try:
            return super().wait(self._watch(gen, waiting_for), *args, **kwargs)
        except BaseException:
            with suppress(Exception):  # a lost connection; left open, it would fail when it is collected
                gen.close()
            raise

    def _watch(self, inner: Any, waiting_for: Any) -> Generator[Any, Any, Any]:
        """Wrap the driver's wait, which wakes ten times a second, and stop it after the limit."""
        last_ready_at = time.monotonic()
        try:
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


def session_name(url: URL) -> str:
    """The name of our sessions in `pg_stat_activity`, by which other servers recognise them."""
    name = str(url.query.get("application_name", ""))
    if name in {"", APPLICATION_NAME}:
        return APPLICATION_NAME
    escaped = name.encode(
        "ascii", "replace"
    ).decode()  # the server escapes other characters, which makes the name longer
    return escaped[: NAME_BYTES - len(NAME_SUFFIX)] + NAME_SUFFIX


def postgresql_engine(url: URL, pool_size: int, wait_limits: WaitLimits) -> Engine:
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
        connection.cursor_factory = PostgresqlCursor
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "invalidate", _note_loss)
    if keeps_plans:
        limits_statements = STATEMENT_TIMEOUT not in str(url.query.get("options", ""))
        event.listen(engine, "connect", partial(prepare_session, limits_statements=limits_statements))
    return engine


def prepare_session(connection: Any, _record: Any, *, limits_statements: bool) -> None:
    """Let PostgreSQL keep prepared statements and their plans: for small statements, most of the cost.

    A plan made for an empty table is kept when the table fills, so plans must suit a full table from the
    start: index scans, which is all that most statements need. Statements that read much of a table call
    `dialect.allow_broad_plans`. `limits_statements` also sets `statement_timeout`.

    Not behind a pooler, which may give each transaction another server connection.
    """
    connection.autocommit = True  # else each statement needs two more round trips
    if has_own_session(connection):
        settings = {"TimeZone": "'UTC'", **READ_COMMITTED, **dict.fromkeys(BROAD_PLAN_SETTINGS, "off")}
        seconds = connection.wait_limits.timeouts.statement_seconds
        if limits_statements and seconds is not None:
            settings[STATEMENT_TIMEOUT] = str(math.ceil(seconds * 1000))
        set_for_session(connection, settings)
        connection.prepare_threshold = PREPARE_AFTER
        connection.prepared_max = MAX_PREPARED
        connection.is_own_session = True
    connection.autocommit = False


def has_own_session(connection: Any) -> bool:
    """Whether the session is the one that was reported at connect; behind a pooler it is another one."""
    [[backend_pid]] = connection.execute("SELECT pg_backend_pid()").fetchall()
    return backend_pid == connection.info.backend_pid


def set_for_session(connection: Any, settings: Mapping[str, str]) -> None:
    connection.execute(";".join(f"SET {name} = {value}" for name, value in settings.items()))


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
