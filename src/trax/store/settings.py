"""The settings an operator has edited: a row each, its value as JSON."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, select

from trax.store import dialect
from trax.store.schema import tables, tables_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Select


def stored(connection: Connection) -> dict[str, str]:
    """The edited settings, as JSON text. Few rows, most often none: cheap enough for every cycle."""
    return {row.name: row.value for row in connection.execute(edited(connection.dialect.name))}


@cache
def edited(dialect: str) -> Select[Any, Any]:
    """The same as a statement, for those that have more to ask in the same trip."""
    setting = tables_for(dialect).setting
    return select(setting.c.name, setting.c.value)


def write(connection: Connection, values: Mapping[str, str], *, now: datetime) -> None:
    """Write these, new or changed; the others stay."""
    if not values:
        return
    setting = tables(connection).setting
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value, "updated_at": now} for name, value in values.items()
    ]
    statement = dialect.insert(connection, setting).values(rows)
    written = {"value": statement.excluded.value, "updated_at": statement.excluded.updated_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=written))


def forget(connection: Connection, names: Collection[str]) -> None:
    """Delete these rows: what code and environment say counts again."""
    setting = tables(connection).setting
    connection.execute(delete(setting).where(setting.c.name.in_(names)))
