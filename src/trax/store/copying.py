"""Bulk insert: COPY on PostgreSQL, one prepared statement run many times on SQLite."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from trax.store.dialect import is_sqlite
from trax.store.types import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

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
