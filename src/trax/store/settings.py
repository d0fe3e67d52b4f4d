"""Read and write settings edited by operators: one row each, the value as JSON."""

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


def load_edited(connection: Connection) -> dict[str, str]:
    """Load the edited settings as JSON text. There are few rows: cheap enough for every cycle."""
    return {row.name: row.value for row in connection.execute(select_edited(connection.dialect.name))}


@cache
def select_edited(dialect: str) -> Select[Any, Any]:
    """Select the edited settings; for callers that send it with other statements."""
    setting = tables_for(dialect).setting
    return select(setting.c.name, setting.c.value)


def write(connection: Connection, values: Mapping[str, str], *, now: datetime) -> None:
    """Insert or update these settings."""
    if not values:
        return
    setting = tables(connection).setting
    rows: list[dict[str, Any]] = [
        {"name": name, "value": value, "updated_at": now} for name, value in values.items()
    ]
    statement = dialect.insert(connection, setting).values(rows)
    changes = {"value": statement.excluded.value, "updated_at": statement.excluded.updated_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changes))


def delete_edited(connection: Connection, names: Collection[str]) -> None:
    """Delete these settings, so that the values from code and environment apply again."""
    setting = tables(connection).setting
    connection.execute(delete(setting).where(setting.c.name.in_(names)))
