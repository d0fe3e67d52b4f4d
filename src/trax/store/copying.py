"""The fastest way in for many rows: COPY, or one prepared statement run many times."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from trax.store.dialect import is_sqlite
from trax.store.types import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

AT_ONCE: Final = 10_000
NULL: Final = r"\N"


def bulk_copy(
    connection: Connection, table: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Write these rows, whose values stand in the order of the names. They must be plain."""
    copy = _copy_to_sqlite if is_sqlite(connection) else _copy_to_postgresql
    left = iter(rows)
    while some := list(islice(left, AT_ONCE)):
        copy(connection, table, names, some)


def _copy_to_sqlite(
    connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    marks = ", ".join("?" for _ in names)
    statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - our names
    values = [tuple(utc_text(one) if isinstance(one, datetime) else one for one in row) for row in rows]
    connection.exec_driver_sql(statement, values)


def _copy_to_postgresql(
    connection: Connection, table: Table, names: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Column by column: most of them are the same in all rows, and are written once."""
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    same = {name: columns[name][0] for name in names[1:] if len(set(columns[name])) == 1}
    different = [name for name in names if name not in same]
    ending = "".join(f"\t{_text(value)}" for value in same.values()) + "\n"
    texts = [[_text(value) for value in columns[name]] for name in different]
    target = f"{table.schema}.{table.name} ({', '.join([*different, *same])})"
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN") as copy:
        copy.write(ending.join([*map("\t".join, zip(*texts, strict=True)), ""]))


def _text(value: Any) -> str:
    """A value as COPY reads it."""
    if isinstance(value, str):
        value = value.replace("\\", r"\\")
        return value if value.isprintable() else _escaped(value)
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "t" if value else "f"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _escaped(value: str) -> str:
    return value.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")
