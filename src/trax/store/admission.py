"""Passing the gate: what waits there, what runs, and who is let through. All of it under the gate lock.

The order is the group's priority, the entry's, the moment it was written, its id. Both reads of it walk an
index and stop when they have enough, so that they cost the same with ten entries waiting or ten million.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, func, insert, literal, select, text, true, update

from trax.records.states import QueueStatus, State
from trax.store.dialect import document, is_sqlite, reserve_ids, rows_of
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import BOUND
from trax.store.schema.metadata import COUNTED
from trax.store.schema.work_queue import DELAYED, READY
from trax.store.types import SQLITE, BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Select, Table, Update

COPIED = (
    "external_id",
    "train",
    "input",
    "manifest_id",
    "group_id",
    "priority",
    "attempt",
    "scheduled_for",
    "timeout_seconds",
)
"""What a run takes over from its entry."""


class Candidate(NamedTuple):
    """An entry at the gate."""

    id: int
    train: str
    group_id: int | None
    group_priority: int
    priority: int
    created_at: datetime


class Admission(NamedTuple):
    """An entry that is let through: who gets it, and whether it occupies a place under the limits."""

    entry_id: int
    submitter: str
    exempt: bool = False


def promote(connection: Connection, *, now: datetime) -> int:
    """Make ready what waited for a moment that has come."""
    queue = tables(connection).work_queue
    statement = update(queue).where(text(DELAYED), queue.c.scheduled_at <= now).values(ready=True)
    return connection.execute(statement).rowcount


def bounds(connection: Connection) -> dict[int, int]:
    """The limit of each group that has one; 0 for one that is disabled."""
    group = tables(connection).manifest_group
    rows = connection.execute(select(group.c.id, group.c.max_active_jobs, group.c.enabled).where(text(BOUND)))
    return {row.id: row.max_active_jobs if row.enabled else 0 for row in rows}


def occupancy(connection: Connection) -> dict[int | None, int]:
    """How many runs occupy a place, by group; None for those without one. Derived from live rows, always."""
    metadata = tables(connection).metadata
    query = select(metadata.c.group_id, func.count()).where(text(COUNTED)).group_by(metadata.c.group_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def first(connection: Connection, *, limit: int) -> list[Candidate]:
    """The first entries in order, whatever group they belong to."""
    rows = connection.execute(_first(connection.dialect.name), {"most": limit})
    return [Candidate(*row) for row in rows]


def heads(connection: Connection, *, rooms: Mapping[int, int], per_group: int, limit: int) -> list[Candidate]:
    """The first entries of every group, in order, as many of each as it has room for.

    A full group may have flooded the queue. Going from group to group passes it over in one step, where
    walking the queue in order would wade through all of it.
    """
    given = {
        "rooms": document({"id": group_id, "room": room} for group_id, room in rooms.items()),
        "per_group": per_group,
        "most": limit,
    }
    return [Candidate(*row) for row in connection.execute(_heads(connection.dialect.name), given)]


def admit(connection: Connection, admissions: Sequence[Admission], *, now: datetime) -> list[int]:
    """Mark the entries dispatched and make their runs, pending; returns the runs' ids, in order.

    Ids rise in the order of admission, since that is the order in which workers take what is equally urgent.
    """
    if not admissions:
        return []
    ids = reserve_ids(connection, tables(connection).metadata, len(admissions))
    rows = document(
        {"id": one.entry_id, "metadata_id": metadata_id, "submitter": one.submitter, "exempt": one.exempt}
        for one, metadata_id in zip(admissions, ids, strict=True)
    )
    given = {"rows": rows, "now": now}
    if is_sqlite(connection):
        connection.execute(_mark(SQLITE), given)
    made = set(connection.execute(_make(connection.dialect.name), given).scalars())
    connection.execute(_answer_letters(connection.dialect.name), given)
    return [one for one in ids if one in made]


def _order(source: Any) -> tuple[ColumnElement[Any], ...]:
    return source.c.group_priority.desc(), source.c.priority.desc(), source.c.created_at, source.c.id


def _columns(queue: Table) -> list[ColumnElement[Any]]:
    return [queue.c[name] for name in Candidate._fields]


@cache
def _first(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    return select(*_columns(queue)).where(text(READY)).order_by(*_order(queue)).limit(bindparam("most"))


@cache
def _heads(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    room = rows_of(dialect, "rooms", {"id": BigId, "room": BigId})
    open_groups = _open_groups(_groups_present(queue), room)
    found = (_heads_in_sqlite if dialect == SQLITE else _heads_by_lateral)(queue, open_groups)
    fitting = select(*(found.c[name] for name in Candidate._fields)).where(found.c.place <= found.c.room)
    alone = select(*_columns(queue)).where(text(READY), queue.c.group_id.is_(None))
    without_group = alone.order_by(*_order(queue)[1:]).limit(bindparam("most")).subquery("without_group")
    both = fitting.union_all(select(without_group)).subquery("heads")
    return select(both).order_by(*_order(both)).limit(bindparam("most"))


def _groups_present(queue: Table) -> Any:
    """The groups that have an entry waiting, found by jumping from each to the next in the index."""
    smallest = select(func.min(queue.c.group_id).label("group_id")).where(text(READY))
    present = smallest.cte("present", recursive=True)
    following = (
        select(func.min(queue.c.group_id))
        .where(text(READY), queue.c.group_id > present.c.group_id)
        .scalar_subquery()
    )
    return present.union_all(select(following).where(present.c.group_id.is_not(None)))


def _open_groups(present: Any, room: Any) -> Any:
    """The groups with room; one without a limit has room for all that is asked of it."""
    left = func.coalesce(room.c.room, bindparam("per_group", type_=BigId))
    return (
        select(present.c.group_id, left.label("room"))
        .select_from(present.outerjoin(room, room.c.id == present.c.group_id))
        .where(present.c.group_id.is_not(None), left > 0)
        .subquery("open_groups")
    )


def _heads_by_lateral(queue: Table, open_groups: Any) -> Any:
    head = _heads_of(queue, open_groups).lateral("head")
    joined = open_groups.join(head, true())
    return select(head, open_groups.c.room, _place(head)).select_from(joined).subquery("found")


def _heads_in_sqlite(queue: Table, open_groups: Any) -> Any:
    """SQLite has no LATERAL; a list of ids for each group does the same."""
    inner = queue.alias("inner_queue")
    ids = _heads_of(inner, open_groups).with_only_columns(inner.c.id).correlate(open_groups)
    joined = open_groups.join(queue, queue.c.id.in_(ids))
    return select(*_columns(queue), open_groups.c.room, _place(queue)).select_from(joined).subquery("found")


def _place(source: Any) -> ColumnElement[int]:
    within_group = func.row_number().over(partition_by=source.c.group_id, order_by=_order(source)[1:])
    return within_group.label("place")


def _heads_of(queue: Any, open_groups: Any) -> Select[Any]:
    return (
        select(*_columns(queue))
        .where(text(READY), queue.c.group_id == open_groups.c.group_id)
        .order_by(*_order(queue)[1:])
        .limit(bindparam("per_group"))
    )


def _given(dialect: str) -> Any:
    t = tables_for(dialect)
    kinds: dict[str, Any] = {"id": BigId, "metadata_id": BigId}
    kinds |= {"submitter": t.metadata.c.submitter.type, "exempt": t.metadata.c.exempt.type}
    return rows_of(dialect, "rows", kinds)


def _mark(dialect: str) -> Update:
    queue, given = tables_for(dialect).work_queue, _given(dialect)
    return (
        update(queue)
        .where(queue.c.id == given.c.id, text("status = 'queued'"))
        .values(
            status=literal(QueueStatus.DISPATCHED.value, literal_execute=True),
            metadata_id=given.c.metadata_id,
            dispatched_at=bindparam("now", type_=Utc),
        )
    )


@cache
def _make(dialect: str) -> Insert:
    """Make the runs. PostgreSQL marks the entries in the same statement, and makes runs of what it marked."""
    t = tables_for(dialect)
    given = _given(dialect)
    if dialect == SQLITE:
        source: Any = t.work_queue
        rows = select().join_from(source, given, given.c.id == source.c.id)
    else:
        wanted = [t.work_queue.c[name] for name in ("id", "metadata_id", *COPIED)]
        source = _mark(dialect).returning(*wanted).cte("marked")
        rows = select().join_from(source, given, given.c.id == source.c.id)
    columns: dict[str, Any] = {name: source.c[name] for name in COPIED} | {
        "id": given.c.metadata_id,
        "state": literal(State.PENDING.value, literal_execute=True),
        "created_at": bindparam("now", type_=Utc),
        "submitter": given.c.submitter,
        "exempt": given.c.exempt,
    }
    chosen = rows.add_columns(*columns.values()).where(source.c.metadata_id == given.c.metadata_id)
    return insert(t.metadata).from_select(list(columns), chosen).returning(t.metadata.c.id)


@cache
def _answer_letters(dialect: str) -> Update:
    """Note on a dead letter that was requeued which run it led to."""
    t = tables_for(dialect)
    given = _given(dialect)
    return (
        update(t.dead_letter)
        .where(
            t.dead_letter.c.id == t.work_queue.c.dead_letter_id,
            t.work_queue.c.id == given.c.id,
            t.work_queue.c.metadata_id == given.c.metadata_id,
        )
        .values(retry_metadata_id=given.c.metadata_id)
    )
