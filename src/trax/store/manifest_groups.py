"""The groups' rows: who shares a limit and a priority."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, func, or_, select, text, update

from trax.records.manifest import ManifestGroup
from trax.store.dialect import (
    among,
    document,
    id_document,
    insert,
    is_sqlite,
    name_document,
    rows_of,
    take_gate_lock,
)
from trax.store.schema import tables, tables_for
from trax.store.schema.work_queue import DELAYED, PARKED, QUEUED, READY
from trax.store.types import BigId, Utc, Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select, Table

    from trax.store.dialect import Insert

GRACE: Final = timedelta(minutes=1)
"""By then whoever had read a priority before it changed has begun to write, or will not."""
SOONEST: Final = timedelta(seconds=1)
LATEST: Final = timedelta(minutes=1)


def named(connection: Connection, names: Iterable[str], *, now: datetime) -> dict[str, ManifestGroup]:
    """The groups of these names; those that did not exist are made, with no limit."""
    wanted = set(names)
    found = of_names(connection, wanted)
    missing = wanted - found.keys()
    if missing:
        connection.execute(_add(connection), {"names": _document(missing), "now": now})
        found |= of_names(connection, missing)
    return found


def is_to_be_made_before(connection: Connection, name: str) -> bool:
    """Whether this group is new, and made elsewhere before the transaction of a caller goes on.

    Everybody who uses the group would wait for the end of that transaction. In SQLite they wait anyway.
    """
    return not is_sqlite(connection) and get(connection, name) is None


def keep(connection: Connection, group: ManifestGroup) -> None:
    """Have no server that starts prune an empty group until this transaction has ended."""
    table = tables(connection).manifest_group
    connection.execute(
        select(table.c.id).where(table.c.id == group.id).with_for_update(read=True, key_share=True)
    )


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
    """Groups in the order of their names; `after` is the name of the last one already seen.

    Groups that are left over from retired manifests are passed over.
    """
    group = tables(connection).manifest_group
    query = select(group).where(_is_in_use(connection)).order_by(group.c.name).limit(limit)
    if after is not None:
        query = query.where(group.c.name > after)
    return [_record(row) for row in connection.execute(query)]


def change(connection: Connection, name: str, changes: Mapping[str, Any], *, now: datetime) -> bool:
    """Change a group, and the place of its entries in the queue when its priority changes with it.

    A priority is then applied again: see `apply_priorities`.
    """
    group = tables(connection).manifest_group
    moves = "priority" in changes
    again = {"priority_changed_at": now, "apply_priority_at": now, "priority_horizon": None}
    changed = (
        update(group)
        .where(group.c.name == name)
        .values(**changes, updated_at=now, **(again if moves and not is_sqlite(connection) else {}))
        .returning(group.c.id)
    )
    group_id = connection.execute(changed).scalar()
    if group_id is not None and moves:
        _move_entries(connection, group_id, changes["priority"])
    return group_id is not None


def apply_priorities(connection: Connection, *, now: datetime) -> int:
    """Give entries the priority of their group that were written with the one before it; returns how many.

    Whoever queues an entry reads the priority of its group and commits later, maybe much later where the
    transaction is a caller's. A change meanwhile does not see that entry. Were the group's row locked by
    whoever queues, an operator would wait for the slowest caller, and all callers would write to one row. So
    the change is applied again instead, at growing intervals, until every transaction is over that could
    have read the priority before: `priority_horizon` is the number of the first transaction that began after
    all of those, and they are over once the oldest one that is open has at least that number. A transaction
    has its number from its first write on, which follows the reading at once: that is what the time of
    `GRACE` is for. SQLite has one writer at a time, so nothing is missed there.
    """
    if is_sqlite(connection):
        return 0
    take_gate_lock(connection)  # as the gate does: both change many entries, and in another order
    group = tables(connection).manifest_group
    wanted = ("id", "priority", "priority_changed_at", "priority_horizon")
    # Read before the entries are: what was written by those that are over by now is seen below.
    oldest, upcoming = (_of_snapshot(name) for name in ("pg_snapshot_xmin", "pg_snapshot_xmax"))
    query = select(*(group.c[name] for name in wanted), oldest.label("oldest"), upcoming.label("upcoming"))
    moved = 0
    for row in connection.execute(query.where(group.c.apply_priority_at <= now).order_by(group.c.id)).all():
        moved += _move_entries(connection, row.id, row.priority)
        is_it = (group.c.id == row.id, group.c.priority_changed_at == row.priority_changed_at)
        connection.execute(
            update(group).where(*is_it, group.c.priority == row.priority).values(_next_application(row, now))
        )
    return moved


def _next_application(row: Row[Any], now: datetime) -> dict[str, Any]:
    since = now - row.priority_changed_at
    if row.priority_horizon is not None and row.oldest >= row.priority_horizon:
        return {"priority_changed_at": None, "apply_priority_at": None, "priority_horizon": None}
    horizon = row.upcoming if row.priority_horizon is None and since >= GRACE else row.priority_horizon
    return {"apply_priority_at": now + min(max(since, SOONEST), LATEST), "priority_horizon": horizon}


def _of_snapshot(name: str) -> ColumnElement[int]:
    snapshot = func.pg_current_snapshot()
    return getattr(func, name)(snapshot).cast(Words).cast(BigId)


def _move_entries(connection: Connection, group_id: int, priority: int) -> int:
    """In two halves, because each has an index of its own."""
    queue = tables(connection).work_queue
    is_stale = (queue.c.group_id == group_id, queue.c.group_priority != priority)
    moved = 0
    for part in (READY, DELAYED, PARKED):
        statement = update(queue).where(*is_stale, text(part)).values(group_priority=priority)
        moved += connection.execute(statement).rowcount
    return moved


def priority_now(queue: Table, group: Table) -> ColumnElement[int]:
    """The priority of an entry's group as it is now; an entry without a group has its own."""
    of_group = select(group.c.priority).where(group.c.id == queue.c.group_id).scalar_subquery()
    return func.coalesce(of_group, queue.c.group_priority)


def of_names(connection: Connection, names: set[str]) -> dict[str, ManifestGroup]:
    """Those of these that exist."""
    wanted = name_document("name", sorted(names))
    rows = connection.execute(_by_name(connection.dialect.name), {"names": wanted})
    return {row.name: _record(row) for row in rows}


def _is_in_use(connection: Connection) -> ColumnElement[bool]:
    """Whether there is more to a group than retired manifests: live ones, entries, a word about it."""
    t = tables(connection)
    group, manifest, queue = t.manifest_group.c, t.manifest.c, t.work_queue.c
    inside = select(manifest.id).where(manifest.group_id == group.id)
    queued = select(queue.id).where(queue.group_id == group.id, text(QUEUED))
    return or_(
        inside.where(manifest.retired_at.is_(None)).exists(),
        ~inside.exists(),
        group.max_active_jobs.is_not(None),
        group.priority != 0,
        ~group.enabled,
        queued.exists(),
    )


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
