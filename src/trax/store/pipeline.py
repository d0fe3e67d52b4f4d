"""Several statements in one round trip.

PostgreSQL answers a pipeline as a whole, so a transaction of six statements needs two trips: one for
BEGIN, the lock and the reads, one for the writes and COMMIT. The statements stay SQLAlchemy's; they are
compiled once and run on the driver's own cursors, because SQLAlchemy asks each cursor for its columns at
once, which a pipeline cannot answer yet. Elsewhere the same statements run one after the other.
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

Step = tuple["Executable", "Mapping[str, Any]"]
Rows = list[tuple[Any, ...]]
Sent = tuple[Any, str, Any]


def run_together(connection: Connection, *steps: Step) -> list[Rows]:
    """The rows of each statement, in order.

    Make the statements once and keep them: they are compiled at first sight and remembered. Their parameters
    go to the driver as they are, so they must be plain: text, numbers, aware moments.
    """
    if is_sqlite(connection):
        return [_run_alone(connection, *step) for step in steps]
    with _driver(connection).pipeline():
        sent = [_send(connection, *step) for step in steps]
    return [_received(connection, *one) for one in sent]


def commit_together(connection: Connection, *steps: Step) -> list[Rows]:
    """The same, and the transaction is committed in the same trip."""
    if is_sqlite(connection):
        rows = run_together(connection, *steps)
        connection.commit()
        return rows
    driver = _driver(connection)
    if len(steps) == 1 and driver.info.transaction_status == TransactionStatus.IDLE:
        return [_run_by_itself(connection, driver, steps[0])]
    try:
        with driver.pipeline():
            sent = [_send(connection, *step) for step in steps]
            connection.commit()
    except BaseException:
        driver.rollback()  # SQLAlchemy believes in the commit and would give the connection back as it is
        raise
    return [_received(connection, *one) for one in sent]


def _run_by_itself(connection: Connection, driver: Any, step: Step) -> Rows:
    """One statement is a transaction of its own: it needs no BEGIN before it and no COMMIT after it."""
    driver.autocommit = True
    try:
        rows = _received(connection, *_send(connection, *step))
    finally:
        driver.autocommit = False
    connection.commit()  # nothing is left to do, but SQLAlchemy must know
    return rows


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _run_alone(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> Rows:
    result = connection.execute(statement, parameters)
    return [tuple(row) for row in result] if result.returns_rows else []


def _send(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> Sent:
    """Whoever listens to the engine hears of these statements like of any other."""
    compiled = _compiled(statement, connection.dialect)
    cursor, given = _driver(connection).cursor(), compiled.construct_params(dict(parameters))
    for hear in connection.dispatch.before_cursor_execute:
        hear(connection, cursor, compiled.string, given, None, False)  # noqa: FBT003
    cursor.execute(compiled.string, given)
    return cursor, compiled.string, given


def _received(connection: Connection, cursor: Any, text: str, given: Any) -> Rows:
    for hear in connection.dispatch.after_cursor_execute:
        hear(connection, cursor, text, given, None, False)  # noqa: FBT003
    return cursor.fetchall() if cursor.pgresult.nfields else []  # its description would be made for nothing


@lru_cache(maxsize=256)
def _compiled(statement: Any, dialect: Dialect) -> SQLCompiler:
    return statement.compile(dialect=dialect)
