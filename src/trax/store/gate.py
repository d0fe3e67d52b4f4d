"""The gate, under its lock: read queued entries, active runs, limits and free slots; then admit entries."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select, text, true, update

from trax.store.dialect import (
    document,
    gate_lock,
    is_sqlite,
    now_parameter,
    rows_of,
    select_now,
)
from trax.store.gate_memory import (
    Candidate,
    GateBounds,
    GateMarks,
    candidate_columns,
    count_statements,
    in_order,
    next_queue_bound,
    next_run_bound,
    parse_candidates,
    select_candidates,
    select_first,
    select_marks,
)
from trax.store.pipeline import run_together
from trax.store.runs.claim import (
    PENDING_HERE,
    Claimed,
    claim_statements,
    group_statements,
    parse_claimed,
)
from trax.store.schema import tables_for
from trax.store.schema.manifest import BOUND
from trax.store.schema.work_queue import DELAYED, PARKED, READY
from trax.store.settings import select_edited
from trax.store.types import POSTGRESQL, SQLITE, BigId, in_utc
from trax.store.workers import FleetMark, fleet_mark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table, Update

    from trax.store.gate_memory import GateMemory
    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.runs.claim import ClaimRequest


MAX_PENDING_COUNTED: Final = 1000
FIRST_DEPTH: Final = 4
"""How many entries of each group are read at first."""
DEEPER: Final = 5
"""How many times more entries are read of a group if these were not enough."""


class GateSnapshot(NamedTuple):
    """What a dispatch cycle reads at the gate, at the time `now`.

    `settings` are the rows edited by operators. `limits` has the groups with a limit; a disabled group has
    0. `active` counts the active runs under the limits by group (key None: without a group), and is None if
    there is no limit. `claimed` are the pending runs claimed for this worker. `slots_elsewhere` is the
    number of free slots of workers that do not dispatch themselves; `has_workers_elsewhere`: there are some.
    """

    now: datetime
    settings: dict[str, str]
    limits: dict[int, int]
    active: dict[int | None, int] | None
    candidates: list[Candidate]
    next_delayed_at: datetime | None
    slots_elsewhere: int
    has_workers_elsewhere: bool
    claimed: list[Claimed]
    accepted_group_ids: frozenset[int] | None = None
    """The groups whose runs this worker accepts; None accepts all."""
    has_parked: bool = False
    """Whether there are parked entries (no worker can run them)."""
    fleet_mark: FleetMark = FleetMark(0, 0, 0)
    """Changes when workers or servers come or go."""
    limit: int = 0
    """How many candidates were read at most."""
    marks: GateMarks | None = None
    """What the next visit needs, to read from `bounds` on."""
    bounds: GateBounds = GateBounds()


def read_gate(
    connection: Connection,
    *,
    limit: int,
    has_global_limit: bool,
    now: datetime | None,
    claim_request: ClaimRequest | None = None,
    memory: GateMemory | None = None,
) -> GateSnapshot:
    """Take the gate lock, make delayed entries ready whose time has come, and read the head of the queue.

    All in one round trip. The time is read after the lock is taken, so that admission times are in order.
    Active runs are counted only if there is a global limit or a group with a limit. With a memory, both reads
    begin where the last visit has left off.

    Other transactions commit between any two of these reads. Entries are read before active runs are counted,
    because the count is skipped when no entry is ready. The time is read after the count, so that a run never
    starts before the recorded end of the run whose capacity it uses.
    """
    dialect = connection.dialect.name
    lock = gate_lock(dialect)
    head = _HeadReads(dialect, limit, has_global_limit, now, None if is_sqlite(connection) else memory)
    reads: list[BoundStatement] = [
        (select_edited(dialect), {}),
        (_promote(dialect), {"now": now}),
        (_limits(dialect), {}),
    ]
    groups = [] if claim_request is None else group_statements(dialect, claim_request)
    claims = [] if claim_request is None else claim_statements(connection, claim_request, now)
    heads = head.statements()
    fleet: BoundStatement = (_select_queue_and_fleet(dialect), {})
    results = run_together(connection, *lock, *reads, *heads, fleet, *groups, *claims)[len(lock) :]
    settings, _, limit_rows = results[:3]
    head_results, rest = results[3 : 3 + len(heads)], results[3 + len(heads) :]
    [(delayed_at, slots_elsewhere, pending, parked, *mark)], *rest = rest
    group_rows, claim_rows = rest[: len(groups)], rest[len(groups) :]
    if not head.accept(head_results):
        head.accept(run_together(connection, *head.statements()))
    return GateSnapshot(
        now=head.now,
        settings=dict(settings),
        limits=_limits_by_group(limit_rows),
        active=active_by_group(head.counts) if has_global_limit or limit_rows else None,
        candidates=head.candidates,
        next_delayed_at=in_utc(delayed_at) if delayed_at else None,
        slots_elsewhere=max(0, slots_elsewhere - pending),
        has_workers_elsewhere=slots_elsewhere > 0,
        claimed=parse_claimed(claim_rows),
        accepted_group_ids=frozenset(row[0] for row in group_rows[0]) if group_rows else None,
        has_parked=bool(parked),
        fleet_mark=FleetMark(*map(int, mark)),
        limit=limit,
        marks=head.marks,
        bounds=head.bounds,
    )


class _HeadReads:
    """The reads that begin at the bounds of a memory: the head of the queue, then active runs, then the time.

    They are repeated without bounds if these do not apply to this session, or if too many entries are new.
    """

    marks: GateMarks | None = None
    candidates: list[Candidate]
    counts: Rows
    now: datetime

    def __init__(
        self,
        dialect: str,
        limit: int,
        has_global_limit: bool,  # noqa: FBT001
        now: datetime | None,
        memory: GateMemory | None,
    ) -> None:
        self._dialect = dialect
        self._limit = limit
        self._has_global_limit = has_global_limit
        self._now = now
        self._memory = memory
        self.bounds = GateBounds() if memory is None else memory.take()

    def statements(self) -> list[BoundStatement]:
        marks: list[BoundStatement] = [] if self._memory is None else [(select_marks(), {})]
        counts = count_statements(
            self._dialect,
            self.bounds.runs,
            has_global_limit=self._has_global_limit,
            with_oldest=self._memory is not None,
        )
        candidates = select_candidates(self._dialect, self.bounds.queue, limit=self._limit)
        return [*marks, candidates, *counts, (select_now(self._dialect), {"now": self._now})]

    def accept(self, results: Sequence[Rows]) -> bool:
        """Store the results. False if they may be incomplete; then the bounds are discarded."""
        memory, bounds = self._memory, self.bounds
        if memory is not None:
            [mark_row], *results = results
            self.marks = GateMarks._make(mark_row)
            is_bound = bounds.queue is not None or bounds.runs is not None
            if not memory.has_seen(self.marks) and is_bound:
                self.bounds = GateBounds()
                return False
        candidate_rows, self.counts, *oldest_rows, now_rows = results
        candidates = parse_candidates(candidate_rows, bounds.queue)
        if candidates is None:
            self.bounds = GateBounds(runs=bounds.runs)
            return False
        self.candidates, self.now = candidates, in_utc(now_rows[0][0])
        if self.marks is not None:
            oldest = oldest_rows[0][0][0] if oldest_rows else None
            self.bounds = GateBounds(
                bounds.queue, next_run_bound(self.marks, self.counts, oldest, bounds.runs)
            )
        return True


def bounds_after(snapshot: GateSnapshot, dispatched: Collection[int], *, has_made_ready: bool) -> GateBounds:
    """The bounds for the next visit, once this one has been committed with these entries dispatched."""
    marks, bounds = snapshot.marks, snapshot.bounds
    if marks is None:
        return bounds
    if has_made_ready:  # after the read, which did not return these entries
        return GateBounds(runs=bounds.runs)
    is_cut = len(snapshot.candidates) >= snapshot.limit
    queue = next_queue_bound(marks, snapshot.candidates, dispatched, bounds.queue, is_cut=is_cut)
    return GateBounds(queue, bounds.runs)


def load_first(connection: Connection, *, limit: int) -> list[Candidate]:
    """The first ready entries in order."""
    [rows] = run_together(connection, (select_first(connection.dialect.name), {"most": limit}))
    return [Candidate(*row) for row in rows]


def count_active_runs(connection: Connection) -> dict[int | None, int]:
    """Count the active runs under the limits, by group (None: without a group), from the rows themselves."""
    statements = count_statements(connection.dialect.name, None, has_global_limit=True, with_oldest=False)
    return active_by_group(run_together(connection, *statements)[0])


def has_other_entries(connection: Connection, group_id: int) -> bool:
    """Whether entries without this group are ready, too: three steps in an index."""
    statement = _select_others(connection.dialect.name)
    [rows] = run_together(connection, (statement, {"group_id": group_id}))
    return bool(rows[0][0])


def load_limits(connection: Connection) -> dict[int, int]:
    """The limit of each group that has one; a disabled group has 0."""
    return _limits_by_group(connection.execute(_limits(connection.dialect.name)))


def _limits_by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {group_id: limit if enabled else 0 for group_id, limit, enabled in rows}


def active_by_group(rows: Iterable[Sequence[Any]]) -> dict[int | None, int]:
    return {row[0]: row[1] for row in rows}


def load_group_heads(
    connection: Connection, *, capacities: Mapping[int, int], per_group: int, limit: int
) -> list[Candidate]:
    """The first entries of every group in order, up to the capacity of each.

    A full group may have flooded the queue. Reading group by group skips it in one step, where reading the
    queue in order would read all of its entries. A few entries of each group are read first. More are read
    only of groups whose entries are all among the first of the queue: further entries of other groups are too
    far back.
    """
    depth = min(FIRST_DEPTH, per_group)
    found = _read_heads(connection, capacities, per_group, depth, limit)
    while True:
        heads = sorted(found, key=lambda entry: entry.position)[:limit]
        counts = Counter(entry.group_id for entry in heads if entry.group_id is not None)
        used_up = [group_id for group_id, count in counts.items() if count == depth]
        remaining = {group_id: min(capacities.get(group_id, per_group), per_group) for group_id in used_up}
        deeper = {group_id: capacity for group_id, capacity in remaining.items() if capacity > depth}
        if not deeper:
            return heads
        depth = min(DEEPER * depth, per_group)
        others = [entry for entry in heads if entry.group_id not in deeper]
        found = [*others, *_read_heads(connection, deeper, per_group, depth, limit, only_given=True)]


def _read_heads(
    connection: Connection,
    capacities: Mapping[int, int],
    per_group: int,
    depth: int,
    limit: int,
    *,
    only_given: bool = False,
) -> list[Candidate]:
    """The first entries, `depth` of each group at most; `only_given`: of the groups in `capacities` alone."""
    parameters = {
        "capacities": document({"id": id_, "capacity": capacity} for id_, capacity in capacities.items()),
        "per_group": per_group,
        "depth": depth,
        "most": limit,
    }
    statement = _heads_of_given if only_given else _heads
    [rows] = run_together(connection, (statement(connection.dialect.name), parameters))
    return [Candidate(*row) for row in rows]


@cache
def _promote(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    return (
        update(queue).where(text(DELAYED), queue.c.scheduled_at <= now_parameter(dialect)).values(ready=True)
    )


@cache
def _select_others(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    given = bindparam("group_id", type_=BigId)
    others = (queue.c.group_id < given, queue.c.group_id > given, queue.c.group_id.is_(None))
    return select(or_(*(select(queue.c.id).where(text(READY), each).exists() for each in others)))


@cache
def _limits(dialect: str) -> Select[Any, Any, Any]:
    group = tables_for(dialect).manifest_group
    return select(group.c.id, group.c.max_active_jobs, group.c.enabled).where(text(BOUND))


@cache
def _select_queue_and_fleet(dialect: str) -> Select[Any]:
    """Select the next delayed time, slots elsewhere, pending runs, if entries are parked, and the mark."""
    t = tables_for(dialect)
    next_delayed = select(func.min(t.work_queue.c.scheduled_at)).where(text(DELAYED))
    slots = select(func.coalesce(func.sum(t.worker.c.concurrency), 0)).where(
        ~t.worker.c.dispatches, text("kind = 'worker'")
    )
    bounded = select(t.metadata.c.id).where(text(PENDING_HERE)).limit(MAX_PENDING_COUNTED).subquery("some")
    pending = select(func.count()).select_from(bounded)
    parked = select(t.work_queue.c.id).where(text(PARKED)).exists()
    numbers = slots.scalar_subquery(), pending.scalar_subquery()
    return select(next_delayed.scalar_subquery(), *numbers, parked, *fleet_mark(dialect))


def _columns(queue: Table, dialect: str) -> list[ColumnElement[Any]]:
    return candidate_columns(dialect, queue, Candidate._fields)


@cache
def _heads(dialect: str) -> Select[*tuple[Any, ...]]:
    """Select the first entries of all groups with capacity, and those without a group."""
    queue = tables_for(dialect).work_queue
    capacity = rows_of(dialect, "capacities", {"id": BigId, "capacity": BigId})
    fitting = _heads_within_capacity(dialect, _open_groups(_groups_with_entries(queue), capacity))
    ungrouped = select(*_columns(queue, dialect)).where(text(READY), queue.c.group_id.is_(None))
    # group_id is null in all of them, but the planner uses the index order only if it is named.
    first = ungrouped.order_by(queue.c.group_id, *in_order(queue)[1:])
    without_group = first.limit(bindparam("most")).subquery("without_group")
    both = fitting.union_all(select(without_group)).subquery("heads")
    return _first_of(both)


@cache
def _heads_of_given(dialect: str) -> Select[*tuple[Any, ...]]:
    """The same for the given groups."""
    given = rows_of(dialect, "capacities", {"id": BigId, "capacity": BigId})
    groups = select(given.c.id.label("group_id"), given.c.capacity).subquery("open_groups")
    return _first_of(_heads_within_capacity(dialect, groups).subquery("heads"))


def _heads_within_capacity(dialect: str, open_groups: Any) -> Select[*tuple[Any, ...]]:
    queue = tables_for(dialect).work_queue
    heads = (_heads_in_sqlite if dialect == SQLITE else _heads_by_lateral)(queue, open_groups)
    columns = [heads.c[name] for name in Candidate._fields]
    return select(*columns).where(heads.c.place <= heads.c.capacity)


def _first_of(heads: Any) -> Select[*tuple[Any, ...]]:
    selected = [heads.c[name] for name in Candidate._fields]
    return select(*selected).order_by(*in_order(heads)).limit(bindparam("most"))


def _groups_with_entries(queue: Table) -> Any:
    """The groups with a ready entry, found by one index step each."""
    smallest = select(func.min(queue.c.group_id).label("group_id")).where(text(READY))
    present = smallest.cte("present", recursive=True)
    following = (
        select(func.min(queue.c.group_id))
        .where(text(READY), queue.c.group_id > present.c.group_id)
        .scalar_subquery()
    )
    return present.union_all(select(following).where(present.c.group_id.is_not(None)))


def _open_groups(present: Any, capacity: Any) -> Any:
    """The groups with capacity left; a group without a limit has the `per_group` maximum."""
    remaining = func.coalesce(capacity.c.capacity, bindparam("per_group", type_=BigId))
    return (
        select(present.c.group_id, remaining.label("capacity"))
        .select_from(present.outerjoin(capacity, capacity.c.id == present.c.group_id))
        .where(present.c.group_id.is_not(None), remaining > 0)
        .subquery("open_groups")
    )


def _heads_by_lateral(queue: Table, open_groups: Any) -> Any:
    head = _heads_of(queue, open_groups, POSTGRESQL).lateral("head")
    joined = open_groups.join(head, true())
    return select(head, open_groups.c.capacity, _position(head)).select_from(joined).subquery("found")


def _heads_in_sqlite(queue: Table, open_groups: Any) -> Any:
    """SQLite has no LATERAL; use a list of ids for each group."""
    inner = queue.alias("inner_queue")
    ids = _heads_of(inner, open_groups, SQLITE).with_only_columns(inner.c.id).correlate(open_groups)
    joined = open_groups.join(queue, queue.c.id.in_(ids))
    return (
        select(*_columns(queue, SQLITE), open_groups.c.capacity, _position(queue))
        .select_from(joined)
        .subquery("found")
    )


def _position(source: Any) -> ColumnElement[int]:
    within_group = func.row_number().over(partition_by=source.c.group_id, order_by=in_order(source)[1:])
    return within_group.label("place")


def _heads_of(queue: Any, open_groups: Any, dialect: str) -> Select[Any]:
    return (
        select(*_columns(queue, dialect))
        .where(text(READY), queue.c.group_id == open_groups.c.group_id)
        .order_by(*in_order(queue)[1:])
        .limit(bindparam("depth"))
    )
