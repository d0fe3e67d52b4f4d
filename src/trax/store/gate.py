"""What is seen at the gate: who waits, who runs, and which limits there are. All of it under the gate lock.

The order is the group's priority, the entry's, the moment it was written, its id. Both reads of it walk an
index and stop when they have enough, so that they cost the same with ten entries waiting or ten million.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Boolean, bindparam, func, or_, select, text, true, update

from trax.store.claim import PENDING_HERE, Claimed, claimed, claiming, looking_for_groups
from trax.store.dialect import document, gate_lock, moment, reading_moment, rows_of
from trax.store.pipeline import run_together
from trax.store.schema import tables_for
from trax.store.schema.manifest import BOUND
from trax.store.schema.metadata import COUNTED
from trax.store.schema.work_queue import DELAYED, PARKED, READY
from trax.store.settings import edited
from trax.store.types import SQLITE, BigId, in_utc
from trax.store.workers import FleetMark, fleet_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table, Update

    from trax.store.claim import Taker
    from trax.store.pipeline import Rows, Step


COUNTED_AT_MOST: Final = 1000
ORDERING: Final = ("group_priority", "priority", "created_at", "id")


class Candidate(NamedTuple):
    """An entry at the gate."""

    id: int
    train: str
    group_id: int | None
    dead_letter_id: int | None


class Sight(NamedTuple):
    """What one look at the gate shows, and the moment of it.

    `settings` are the rows operators have edited. `limits` has the groups that have one, 0 for one that is
    disabled; `active` counts the runs that occupy a place, by group, None for those without one, and is None
    where nobody asked. `claimed` are pending runs the looking worker took, `room_elsewhere` is how many more
    runs could be taken by workers that do not come to the gate themselves.
    """

    now: datetime
    settings: dict[str, str]
    limits: dict[int, int]
    active: dict[int | None, int] | None
    candidates: list[Candidate]
    next_moment: datetime | None
    room_elsewhere: int
    claimed: list[Claimed]
    taken_groups: frozenset[int] | None = None
    """The groups that the looking worker takes runs of; None: all of them."""
    has_parked: bool = False
    """Whether entries wait outside the queue that nobody could start."""
    fleet_mark: FleetMark = FleetMark(0, 0, 0)
    """Which workers and servers there are."""


def look(
    connection: Connection, *, most: int, is_bound: bool, now: datetime | None, taker: Taker | None = None
) -> Sight:
    """Take the gate lock, promote what waited for a moment that has come, and read the head of the queue.

    Everything in one trip. The moment is read once the lock is held, so that moments of admission are in
    order. What runs is counted only if there is a limit (`is_bound` for the global one) to hold it against.

    Others commit between any two of these reads. Who waits is read before what runs is counted, for that is
    skipped when nobody waits; the moment comes after the count, so that a place is never given away before
    the record says that it was left.
    """
    dialect = connection.dialect.name
    lock = gate_lock(connection)
    reads: list[Step] = [
        (edited(dialect), {}),
        (_promote(dialect), {"now": now}),
        (_limits(dialect), {}),
        (first_in_order(dialect), {"most": most}),
        (_occupancy(dialect), {"is_bound": is_bound}),
        (reading_moment(dialect), {"now": now}),
        (_elsewhere(dialect), {}),
    ]
    groups = [] if taker is None else looking_for_groups(dialect, taker)
    takes = [] if taker is None else claiming(connection, taker, now)
    results = run_together(connection, *lock, *reads, *groups, *takes)[len(lock) :]
    settings, _, limit_rows, waiting, active, moments, [(next_moment, room, parked, *mark)], *rest = results
    taken_groups, taken = rest[: len(groups)], rest[len(groups) :]
    return Sight(
        now=in_utc(moments[0][0]),
        settings=dict(settings),
        limits=_limits_by_group(limit_rows),
        active=counted(active) if is_bound or limit_rows else None,
        candidates=list(map(Candidate._make, waiting)),
        next_moment=in_utc(next_moment) if next_moment else None,
        room_elsewhere=max(0, room),
        claimed=claimed(taken),
        taken_groups=frozenset(row[0] for row in taken_groups[0]) if taken_groups else None,
        has_parked=bool(parked),
        fleet_mark=FleetMark(*map(int, mark)),
    )


def first(connection: Connection, *, most: int) -> list[Candidate]:
    """The first entries in order."""
    [rows] = run_together(connection, (first_in_order(connection.dialect.name), {"most": most}))
    return list(map(Candidate._make, rows))


def occupancy(connection: Connection) -> dict[int | None, int]:
    """How many runs occupy a place, by group; None for those without one. Derived from live rows, always."""
    statement = _occupancy(connection.dialect.name)
    return counted(run_together(connection, (statement, {"is_bound": True}))[0])


def limits(connection: Connection) -> dict[int, int]:
    """The groups that have a limit, 0 for one that is disabled."""
    return _limits_by_group(connection.execute(_limits(connection.dialect.name)))


def _limits_by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {group_id: limit if enabled else 0 for group_id, limit, enabled in rows}


def counted(rows: Rows) -> dict[int | None, int]:
    return dict(rows)


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
    [rows] = run_together(connection, (_heads(connection.dialect.name), given))
    return list(map(Candidate._make, rows))


@cache
def _promote(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    return update(queue).where(text(DELAYED), queue.c.scheduled_at <= moment(dialect)).values(ready=True)


@cache
def _limits(dialect: str) -> Select[Any, Any, Any]:
    group = tables_for(dialect).manifest_group
    return select(group.c.id, group.c.max_active_jobs, group.c.enabled).where(text(BOUND))


@cache
def _occupancy(dialect: str) -> Select[Any, int]:
    t = tables_for(dialect)
    a_group_is_bound = select(t.manifest_group.c.id).where(text(BOUND)).exists()
    someone_waits = select(t.work_queue.c.id).where(text(READY)).exists()
    return (
        select(t.metadata.c.group_id, func.count())
        .where(text(COUNTED), or_(bindparam("is_bound", type_=Boolean), a_group_is_bound), someone_waits)
        .group_by(t.metadata.c.group_id)
    )


@cache
def _elsewhere(dialect: str) -> Select[Any]:
    """When the earliest delayed entry may run, and the slots elsewhere that nothing is meant for yet.

    Then whether entries are parked, and the mark of the fleet.
    """
    t = tables_for(dialect)
    moment = select(func.min(t.work_queue.c.scheduled_at)).where(text(DELAYED))
    slots = select(func.coalesce(func.sum(t.worker.c.concurrency), 0)).where(
        ~t.worker.c.dispatches, text("kind = 'worker'")
    )
    some = select(t.metadata.c.id).where(text(PENDING_HERE)).limit(COUNTED_AT_MOST).subquery("some")
    pending = select(func.count()).select_from(some)
    parked = select(t.work_queue.c.id).where(text(PARKED)).exists()
    room = slots.scalar_subquery() - pending.scalar_subquery()
    return select(moment.scalar_subquery(), room, parked, *fleet_mark(dialect))


def _order(source: Any) -> tuple[ColumnElement[Any], ...]:
    return source.c.group_priority.desc(), source.c.priority.desc(), source.c.created_at, source.c.id


def _columns(queue: Table) -> list[ColumnElement[Any]]:
    """What is told of an entry, and what puts it in order."""
    return [queue.c[name] for name in dict.fromkeys((*Candidate._fields, *ORDERING))]


@cache
def first_in_order(dialect: str, names: tuple[str, ...] = Candidate._fields) -> Select[Any]:
    """Asks for the first `most` entries that could run now."""
    queue = tables_for(dialect).work_queue
    wanted = [queue.c[name] for name in names]
    return select(*wanted).where(text(READY)).order_by(*_order(queue)).limit(bindparam("most"))


@cache
def _heads(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    room = rows_of(dialect, "rooms", {"id": BigId, "room": BigId})
    open_groups = _open_groups(_groups_present(queue), room)
    found = (_heads_in_sqlite if dialect == SQLITE else _heads_by_lateral)(queue, open_groups)
    columns = [column.name for column in _columns(queue)]
    fitting = select(*(found.c[name] for name in columns)).where(found.c.place <= found.c.room)
    alone = select(*_columns(queue)).where(text(READY), queue.c.group_id.is_(None))
    # The group is null in all of them; named all the same, or the index is not known to be in this order.
    in_order = alone.order_by(queue.c.group_id, *_order(queue)[1:])
    without_group = in_order.limit(bindparam("most")).subquery("without_group")
    both = fitting.union_all(select(without_group)).subquery("heads")
    wanted = [both.c[name] for name in Candidate._fields]
    return select(*wanted).order_by(*_order(both)).limit(bindparam("most"))


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
