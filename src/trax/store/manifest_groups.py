"""The groups' rows: who shares a limit and a priority."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, update

from trax.records.manifest import ManifestGroup
from trax.store.dialect import among, document, id_document, insert, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.work_queue import QUEUED
from trax.store.types import Utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select

    from trax.store.dialect import Insert


def named(connection: Connection, names: Iterable[str], *, now: datetime) -> dict[str, ManifestGroup]:
    """The groups of these names; those that did not exist are made, with no limit."""
    wanted = set(names)
    found = of_names(connection, wanted)
    missing = wanted - found.keys()
    if missing:
        connection.execute(_add(connection), {"names": _document(missing), "now": now})
        found |= of_names(connection, missing)
    return found


def get(connection: Connection, name: str) -> ManifestGroup | None:
    return of_names(connection, {name}).get(name)


def locked(connection: Connection, name: str) -> ManifestGroup | None:
    """The group as it is, and stays until the transaction ends."""
    group = tables(connection).manifest_group
    query = select(group).where(group.c.name == name).with_for_update(key_share=True)
    row = connection.execute(query).one_or_none()
    return _record(row) if row else None


def priorities(connection: Connection, ids: Iterable[int]) -> dict[int, int]:
    group = tables(connection).manifest_group
    query = select(group.c.id, group.c.priority).where(among(connection, group.c.id))
    return {row.id: row.priority for row in connection.execute(query, {"ids": id_document(ids)})}


def listed(connection: Connection, *, after: str | None = None, limit: int = 50) -> list[ManifestGroup]:
    """Groups in the order of their names; `after` is the name of the last one already seen."""
    group = tables(connection).manifest_group
    query = select(group).order_by(group.c.name).limit(limit)
    if after is not None:
        query = query.where(group.c.name > after)
    return [_record(row) for row in connection.execute(query)]


def change(connection: Connection, name: str, changes: Mapping[str, Any], *, now: datetime) -> bool:
    """Change a group, and the place of its entries in the queue when its priority changes with it."""
    t = tables(connection)
    changed = (
        update(t.manifest_group)
        .where(t.manifest_group.c.name == name)
        .values(**changes, updated_at=now)
        .returning(t.manifest_group.c.id)
    )
    group_id = connection.execute(changed).scalar()
    if group_id is not None and "priority" in changes:
        connection.execute(
            update(t.work_queue)
            .where(t.work_queue.c.group_id == group_id, text(QUEUED))
            .values(group_priority=changes["priority"])
        )
    return group_id is not None


def of_names(connection: Connection, names: set[str]) -> dict[str, ManifestGroup]:
    """Those of these that exist."""
    rows = connection.execute(_by_name(connection.dialect.name), {"names": _document(names)})
    return {row.name: _record(row) for row in rows}


def _document(names: set[str]) -> str:
    return document({"name": name} for name in sorted(names))


@cache
def _by_name(dialect: str) -> Select[Any]:
    group = tables_for(dialect).manifest_group
    given = rows_of(dialect, "names", {"name": group.c.name.type})
    return select(group).join(given, given.c.name == group.c.name)


def _add(connection: Connection) -> Insert:
    group = tables(connection).manifest_group
    given = rows_of(connection.dialect.name, "names", {"name": group.c.name.type})
    now = bindparam("now", type_=Utc)
    # SQLite reads "FROM … ON" as the beginning of a join unless a WHERE stands between them.
    rows = select(given.c.name, now, now).where(text("true"))
    return (
        insert(connection, group)
        .from_select(["name", "created_at", "updated_at"], rows)
        .on_conflict_do_nothing(index_elements=["name"])
    )


def _record(row: Row[Any]) -> ManifestGroup:
    return ManifestGroup(
        id=row.id,
        name=row.name,
        priority=row.priority,
        max_active_jobs=row.max_active_jobs,
        enabled=row.enabled,
    )
