"""Run several statements in one round trip (PostgreSQL pipeline mode).

A transaction of six statements needs two round trips: one for BEGIN, the lock and the reads, one for the
writes and COMMIT. The statements are SQLAlchemy's, compiled once and run on the driver's cursors: SQLAlchemy
reads the columns of a cursor immediately, and a pipeline does not have them yet. On SQLite the statements run
one after the other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from psycopg.pq import TransactionStatus

from trax.store.dialect import is_sqlite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Dialect, Executable
    from sqlalchemy.sql.compiler import SQLCompiler

BoundStatement = tuple["Executable", "Mapping[str, Any]"]
Rows = list[tuple[Any, ...]]
SentStatement = tuple[Any, str, Any]


def run_together(connection: Connection, *statements: BoundStatement) -> list[Rows]:
    """Run the statements and return the rows of each, in order.

    Build each statement once and reuse it: the compiled form is cached. Parameters go to the driver
    unconverted, so use only text, numbers and aware datetimes.
    """
    if is_sqlite(connection):
        return [_execute(connection, *step) for step in statements]
    with _driver(connection).pipeline():
        sent = [_send(connection, *step) for step in statements]
    return [_fetch_rows(connection, *statement) for statement in sent]


def commit_together(connection: Connection, *statements: BoundStatement) -> list[Rows]:
    """Like `run_together`, with the commit in the same round trip."""
    if is_sqlite(connection):
        rows = run_together(connection, *statements)
        connection.commit()
        return rows
    driver = _driver(connection)
    if len(statements) == 1 and driver.info.transaction_status == TransactionStatus.IDLE:
        return [_run_autocommit(connection, driver, statements[0])]
    try:
        with driver.pipeline():
            sent = [_send(connection, *step) for step in statements]
            connection.commit()
    except BaseException:
        driver.rollback()  # SQLAlchemy assumes that the commit worked and would not reset it
        raise
    return [_fetch_rows(connection, *statement) for statement in sent]


def _run_autocommit(connection: Connection, driver: Any, step: BoundStatement) -> Rows:
    """Run a single statement in autocommit mode, without BEGIN and COMMIT."""
    driver.autocommit = True
    try:
        rows = _fetch_rows(connection, *_send(connection, *step))
    finally:
        driver.autocommit = False
    connection.commit()  # already committed; this updates SQLAlchemy's state
    return rows


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _execute(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> Rows:
    result = connection.execute(statement, parameters)
    return [tuple(row) for row in result] if result.returns_rows else []


def _send(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> SentStatement:
    """Send one statement. The engine's cursor events fire as for any other statement."""
    compiled = _compile(statement, connection.dialect)
    cursor, values = _driver(connection).cursor(), compiled.construct_params(dict(parameters))
    for listener in connection.dispatch.before_cursor_execute:
        listener(connection, cursor, compiled.string, values, None, False)  # noqa: FBT003
    cursor.execute(compiled.string, values)
    return cursor, compiled.string, values


def _fetch_rows(connection: Connection, cursor: Any, text: str, parameters: Any) -> Rows:
    for listener in connection.dispatch.after_cursor_execute:
        listener(connection, cursor, text, parameters, None, False)  # noqa: FBT003
    return cursor.fetchall() if cursor.pgresult.nfields else []  # cheaper than building `description`


@lru_cache(maxsize=256)
def _compile(statement: Any, dialect: Dialect) -> SQLCompiler:
    return statement.compile(dialect=dialect)
