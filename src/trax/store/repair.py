"""Repair rows that were edited by hand and that no cycle could read or admit: reset the values concerned.

SQLite accepts values of any type in any column, and text that is not UTF-8. PostgreSQL accepts times that
Python has no value for. Neither checks that the manifest of an entry exists. One such row would fail every
cycle that reads it, and hold up all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Boolean, Float, Integer, text

from trax.bounds import EARLIEST, LARGEST_COUNT, LATEST
from trax.errors import RowsRefused
from trax.store.dialect import is_sqlite, lift_limits
from trax.store.faults import savepoint
from trax.store.schema import tables
from trax.store.types import Utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Column, Connection, Table

    from trax.store.schema import Tables

# ruff: noqa: S608 - the statements are made of names of the schema

IS_TEXT: Final = "trax_is_text"
MAX_IDS: Final = 10
"""How many rows a report names."""


class RepairedColumn(NamedTuple):
    """A column whose value was reset in some rows; `ids` are the keys of the first of them.

    `is_reset` is false if the database did not accept the new value: then the row must be corrected by hand.
    """

    table: str
    column: str
    ids: list[Any]
    rows: int
    is_reset: bool


def repair_rows(connection: Connection) -> list[RepairedColumn]:
    """Reset values that cannot be read, to NULL or to the default of their column, and say which."""
    lift_limits(connection)
    if is_sqlite(connection):
        driver: Any = connection.connection.dbapi_connection
        driver.create_function(IS_TEXT, 1, _is_text, deterministic=True)
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))  # a row may have several that are wrong
    t = tables(connection)
    checked = (t.manifest_group, t.manifest, t.work_queue, t.metadata, t.dead_letter, t.worker, t.setting)
    return [each for table in checked for each in _repair_table(connection, table)]


def _repair_table(connection: Connection, table: Table) -> Iterator[RepairedColumn]:
    conditions = dict(_conditions(connection, table))
    if not conditions:
        return
    any_bad = " OR ".join(f"({condition})" for condition in conditions.values())
    if not connection.execute(text(f"SELECT 1 FROM {table.fullname} WHERE {any_bad} LIMIT 1")).first():
        return
    for name, condition in conditions.items():
        repaired = _repair_column(connection, table, table.c[name], condition)
        if repaired is not None:
            yield repaired


def _repair_column(
    connection: Connection, table: Table, column: Column[Any], condition: str
) -> RepairedColumn | None:
    key = next(iter(table.primary_key.columns)).name
    found = connection.execute(text(f"SELECT {key} FROM {table.fullname} WHERE {condition}")).scalars().all()
    if not found:
        return None
    update = f'UPDATE {table.fullname} SET "{column.name}" = {{}} WHERE {condition}'
    is_reset = any(_is_accepted(connection, update.format(value)) for value in _replacements(column, key))
    return RepairedColumn(table.name, column.name, list(found[:MAX_IDS]), len(found), is_reset)


def _is_accepted(connection: Connection, statement: str) -> bool:
    try:
        with savepoint(connection):
            connection.execute(text(statement))
    except RowsRefused:
        return False
    return True


def _conditions(connection: Connection, table: Table) -> Iterator[tuple[str, str]]:
    """For each column that may hold an unreadable value, the condition for such a row."""
    is_bad = _is_bad_in_sqlite if is_sqlite(connection) else _is_bad_in_postgresql
    t = tables(connection)
    for column in table.columns:
        if column.primary_key:
            continue
        conditions = [is_bad(f'"{column.name}"', column.type), _refers_to_nothing(column, t)]
        if any(conditions):
            yield column.name, " OR ".join(filter(None, conditions))


def _refers_to_nothing(column: Column[Any], t: Tables) -> str | None:
    """Entries have no foreign key; and with SQLite's own shell, nothing checks those of other tables."""
    if column is t.work_queue.c.manifest_id:
        target, only = t.manifest.fullname, "status = 'queued' AND "
    elif column.foreign_keys and column.nullable:
        target, only = next(iter(column.foreign_keys)).column.table.fullname, ""
    else:
        return None
    return f"({only}{column.name} IS NOT NULL AND {column.name} NOT IN (SELECT id FROM {target}))"


def _is_bad_in_sqlite(name: str, kind: Any) -> str | None:
    if isinstance(kind, Utc):
        return None  # read as the latest time
    if isinstance(kind, Boolean | Integer):
        return f"typeof({name}) NOT IN ('integer', 'null')"
    if isinstance(kind, Float):
        return f"typeof({name}) NOT IN ('real', 'integer', 'null') OR abs({name}) > 1e300"
    return f"typeof({name}) NOT IN ('text', 'null') OR NOT {IS_TEXT}(CAST({name} AS BLOB))"


def _is_bad_in_postgresql(name: str, kind: Any) -> str | None:
    if isinstance(kind, Utc):
        return f"{name} NOT BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00'"
    if isinstance(kind, Float):
        return f"{name} IN ('NaN', 'Infinity', '-Infinity')"
    return None


def _replacements(column: Column[Any], key: str) -> Iterator[str]:
    """Values to reset a column to; the next one is for a row whose constraints refuse the one before."""
    if isinstance(column.type, Utc):
        yield f"""least(greatest("{column.name}", '{EARLIEST}'), '{LATEST}')"""
        return
    if column.nullable:
        yield "NULL"
    elif column.server_default is not None:
        yield _default_of(column)
    if isinstance(column.type, Boolean | Integer | Float):
        yield from ("0", str(LARGEST_COUNT))  # no schedule may have an interval of 0
    else:
        yield f"'unreadable ' || {key}"


def _default_of(column: Column[Any]) -> str:
    default: Any = column.server_default
    return f"'{default.arg}'" if isinstance(default.arg, str) else str(default.arg)


def _is_text(raw: bytes | None) -> bool:
    try:
        raw.decode() if raw else None
    except UnicodeDecodeError:
        return False
    return True
