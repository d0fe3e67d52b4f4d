"""Several statements in one round trip (PostgreSQL pipeline mode), and bulk inserts by COPY."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.store.dialect import is_sqlite
from trax.store.types import SQLITE, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Dialect, Executable, Table
    from sqlalchemy.sql.compiler import SQLCompiler


BoundStatement = tuple["Executable", "Mapping[str, Any]"]
Rows = list[tuple[Any, ...]]
SentStatement = tuple[Any, str, Any]

AT_COMMIT: Final = "The transaction was refused at its commit; no statement of it was refused."
"""A note on a driver error. What is wrong may have nothing to do with the rows."""


MAX_STATEMENT_BYTES: Final = 1_000_000_000
"""PostgreSQL ends the session of whoever sends a longer message, without naming the cause."""
MAX_CHARACTER_BYTES: Final = 4


def run_together(connection: Connection, *statements: BoundStatement) -> list[Rows]:
    """Run the statements and return the rows of each, in order.

    Build each statement once and reuse it: the compiled form is cached. Parameters go to the driver
    unconverted, so use only text, numbers and aware datetimes.
    """
    if is_sqlite(connection):
        return [_execute(connection, *step) for step in statements]
    try:
        with _driver(connection).pipeline():
            sent = [_send(connection, *step) for step in statements]
    except Exception as error:  # noqa: BLE001 - raised again
        raise _first_error(error)  # noqa: B904 - it has a context of its own
    return [_fetch_rows(connection, *statement) for statement in sent]


def commit_together(connection: Connection, *statements: BoundStatement) -> list[Rows]:
    """Like `run_together`, with the commit in the same round trip.

    An error of the commit itself has the note `AT_COMMIT`.
    """
    if is_sqlite(connection):
        rows = run_together(connection, *statements)
        connection.commit()
        return rows
    from psycopg.pq import TransactionStatus

    driver = _driver(connection)
    is_alone = len(statements) == 1 and driver.info.transaction_status == TransactionStatus.IDLE
    if is_alone and driver.is_own_session:
        rows = commit_alone(connection, statements[0])
        connection.commit()  # already committed; this updates SQLAlchemy's state
        return [rows]
    sent: list[SentStatement] = []
    committing = driver.cursor()
    try:
        with driver.pipeline():
            sent += [_send(connection, *step) for step in statements]
            committing.execute("COMMIT", prepare=False)
    except Exception as error:  # noqa: BLE001 - raised again
        first = _first_error(error)
        if len(sent) == len(statements) and all(cursor.pgresult for cursor, *_ in sent):
            first.add_note(AT_COMMIT)
        raise first  # noqa: B904 - it has a context of its own
    check_committed(committing)
    connection.commit()  # already committed; this updates SQLAlchemy's state
    return [_fetch_rows(connection, *statement) for statement in sent]


def _first_error(error: Exception) -> Exception:
    """The error of the first statement that failed: the driver may raise that the later ones were skipped."""
    from psycopg.errors import Error, PipelineAborted

    cause = error.__context__
    return cause if isinstance(error, PipelineAborted) and isinstance(cause, Error) else error


def check_committed(cursor: Any) -> None:
    """Raise unless the cursor's COMMIT was one: after an error, the server answers it with ROLLBACK."""
    if cursor.statusmessage != "COMMIT":
        from psycopg.errors import InFailedSqlTransaction

        raise InFailedSqlTransaction(
            f"the transaction was rolled back: COMMIT was answered with {cursor.statusmessage}"
        )


def commit_alone(connection: Connection, statement: BoundStatement) -> Rows:
    """Run a statement that is a whole transaction.

    On PostgreSQL it needs no BEGIN and COMMIT, except behind a pooler, whose sessions have settings of their
    own.
    """
    if connection.dialect.name == SQLITE:
        with connection.begin():
            return _execute(connection, *statement)
    driver = _driver(connection)
    if not driver.is_own_session:
        with connection.begin():
            return commit_together(connection, statement)[0]
    driver.autocommit = True
    try:
        rows = _fetch_rows(connection, *_send(connection, *statement))
    except BaseException:
        with suppress(Exception):  # of a lost connection: it must not hide the error
            driver.autocommit = False
        raise
    driver.autocommit = False
    return rows


def check_size(values: Iterable[Any]) -> None:
    """Refuse values that are too long for a statement; those that are sent as bytes count exactly."""
    size = 0
    for value in values:
        if isinstance(value, bytes | bytearray):
            size += len(value)
        elif isinstance(value, str):
            size += (
                len(value) if len(value) < MAX_STATEMENT_BYTES / MAX_CHARACTER_BYTES else len(value.encode())
            )
    if size > MAX_STATEMENT_BYTES:
        from psycopg import DataError

        raise DataError(
            f"the values have {size:,} bytes, but one statement can have at most {MAX_STATEMENT_BYTES:,}"
        )


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection


def _execute(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> Rows:
    """Execute one statement on SQLite, with the driver itself: SQLAlchemy takes three times as long.

    Not for a caller's connection without a transaction: SQLAlchemy would not know that one began.
    """
    plain, driver = _compile_for_sqlite(statement, connection.dialect), _driver(connection)
    if plain is None or not connection.in_transaction() or not isinstance(driver, sqlite3.Connection):
        result = connection.execute(statement, parameters)
        return [tuple(row) for row in result] if result.returns_rows else []
    given = {**plain.constants, **parameters}
    values = [given[name] if bind is None else bind(given[name]) for name, bind in plain.binds]
    cursor = driver.cursor()
    for listener in connection.dispatch.before_cursor_execute:
        listener(connection, cursor, plain.text, values, None, False)  # noqa: FBT003
    rows = cursor.execute(plain.text, values).fetchall()
    for listener in connection.dispatch.after_cursor_execute:
        listener(connection, cursor, plain.text, values, None, False)  # noqa: FBT003
    return [plain.load_row(row) for row in rows] if plain.loads else rows


class _SqliteStatement(NamedTuple):
    """A statement as the driver gets it, and how values become parameters and columns become values."""

    text: str
    binds: Sequence[tuple[str, Any]]
    constants: Mapping[str, Any]
    loads: Sequence[Any]

    def load_row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value if load is None else load(value) for load, value in zip(self.loads, row, strict=True)
        )


@lru_cache(maxsize=512)
def _compile_for_sqlite(statement: Any, dialect: Dialect) -> _SqliteStatement | None:
    """Compile a statement once; None if its text depends on its parameters."""
    compiled: SQLCompiler = statement.compile(dialect=dialect)
    if compiled.post_compile_params or compiled.literal_execute_params:
        return None
    binds = compiled.binds
    required = {each.key for each in binds.values() if each.required}
    types = [column.type for column in getattr(statement, "exported_columns", ())]
    loads = [each.dialect_impl(dialect).result_processor(dialect, None) for each in types]
    return _SqliteStatement(
        compiled.string,
        [
            (name, binds[name].type.dialect_impl(dialect).bind_processor(dialect))
            for name in compiled.positiontup or ()
        ],
        {name: value for name, value in compiled.params.items() if name not in required},
        loads if any(loads) else (),
    )


def _send(connection: Connection, statement: Executable, parameters: Mapping[str, Any]) -> SentStatement:
    """Send one statement. The engine's cursor events fire as for any other statement."""
    text, constants = _compile(statement, connection.dialect)
    cursor, values = _driver(connection).cursor(), {**constants, **parameters}
    check_size(values.values())
    for listener in connection.dispatch.before_cursor_execute:
        listener(connection, cursor, text, values, None, False)  # noqa: FBT003
    cursor.execute(text, values)
    return cursor, text, values


def _fetch_rows(connection: Connection, cursor: Any, text: str, parameters: Any) -> Rows:
    for listener in connection.dispatch.after_cursor_execute:
        listener(connection, cursor, text, parameters, None, False)  # noqa: FBT003
    return cursor.fetchall() if cursor.pgresult.nfields else []  # cheaper than building `description`


@lru_cache(maxsize=256)
def _compile(statement: Any, dialect: Dialect) -> tuple[str, Mapping[str, Any]]:
    """The SQL text, and the parameters that have a value in the statement itself."""
    compiled: SQLCompiler = statement.compile(dialect=dialect)
    required = {each.key for each in compiled.binds.values() if each.required}
    return compiled.string, {name: value for name, value in compiled.params.items() if name not in required}


BATCH_ROWS: Final = 10_000
NULL: Final = r"\N"


def bulk_copy(
    connection: Connection, table: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows of plain values, in the order of `names`."""
    copy = _copy_to_sqlite if is_sqlite(connection) else _copy_to_postgresql
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH_ROWS)):
        copy(connection, table, names, batch)


def _copy_to_sqlite(
    connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    marks = ", ".join("?" for _ in names)
    statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - no user input
    values = [
        tuple(utc_text(value) if isinstance(value, datetime) else value for value in row) for row in rows
    ]
    connection.exec_driver_sql(statement, values)


def _copy_to_postgresql(
    connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Format column by column: a column with one value in all rows is formatted once."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    constant = {name: columns[name][0] for name in names[1:] if len(set(columns[name])) == 1}
    varying = [name for name in names if name not in constant]
    line_end = "".join(f"\t{_text(value)}" for value in constant.values()) + "\n"
    texts = [[_text(value) for value in columns[name]] for name in varying]
    target = f"{table.schema}.{table.name} ({', '.join([*varying, *constant])})"
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN") as copy:
        copy.write(line_end.join([*map("\t".join, zip(*texts, strict=True)), ""]))


def _text(value: Any) -> str:
    """A value in the text format of COPY."""
    if isinstance(value, str):
        value = value.replace("\\", r"\\")
        return value if value.isprintable() else _escape(value)
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "t" if value else "f"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _escape(value: str) -> str:
    return value.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")
