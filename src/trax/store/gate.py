"""The gate, under its lock: read queued entries, active runs, limits and free slots; then admit entries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Boolean, bindparam, case, func, insert, or_, select, text, true, update

from trax.events import Topic
from trax.records.states import QueueStatus, State
from trax.store.announce import announce, notifications
from trax.store.dialect import (
    document,
    gate_lock,
    is_sqlite,
    next_id,
    now_parameter,
    quick_document,
    reserve_ids,
    rows_of,
    select_now,
)
from trax.store.pipeline import commit_together, run_together
from trax.store.runs.claim import (
    PENDING_HERE,
    Claimed,
    claim_columns,
    claim_statements,
    group_statements,
    parse_claimed,
)
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import BOUND
from trax.store.schema.metadata import UNDER_LIMITS
from trax.store.schema.work_queue import DELAYED, PARKED, READY
from trax.store.settings import select_edited
from trax.store.types import SQLITE, BigId, Utc, in_utc, sql_literal
from trax.store.workers import FleetMark, fleet_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Select, Table, Update

    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.runs.claim import ClaimRequest


MAX_PENDING_COUNTED: Final = 1000
ORDER_COLUMNS: Final = ("group_priority", "priority", "created_at", "id")


class Candidate(NamedTuple):
    """A queued entry that may be admitted."""

    id: int
    train: str
    group_id: int | None
    dead_letter_id: int | None


class GateSnapshot(NamedTuple):
    """What a dispatch cycle reads at the gate, at the time `now`.

    `settings` are the rows edited by operators. `limits` has the groups with a limit; a disabled group has
    0. `active` counts the active runs under the limits by group (key None: without a group), and is None if
    there is no limit. `claimed` are the pending runs claimed for this worker. `slots_elsewhere` is the
    number of free slots of workers that do not dispatch themselves.
    """

    now: datetime
    settings: dict[str, str]
    limits: dict[int, int]
    active: dict[int | None, int] | None
    candidates: list[Candidate]
    next_delayed_at: datetime | None
    slots_elsewhere: int
    claimed: list[Claimed]
    accepted_group_ids: frozenset[int] | None = None
    """The groups whose runs this worker accepts; None accepts all."""
    has_parked: bool = False
    """Whether there are parked entries (no worker can run them)."""
    fleet_mark: FleetMark = FleetMark(0, 0, 0)
    """Changes when workers or servers come or go."""


def read_gate(
    connection: Connection,
    *,
    limit: int,
    has_global_limit: bool,
    now: datetime | None,
    claim_request: ClaimRequest | None = None,
) -> GateSnapshot:
    """Take the gate lock, make delayed entries ready whose time has come, and read the head of the queue.

    All in one round trip. The time is read after the lock is taken, so that admission times are in order.
    Active runs are counted only if there is a global limit or a group with a limit.

    Other transactions commit between any two of these reads. Entries are read before active runs are counted,
    because the count is skipped when no entry is ready. The time is read after the count, so that a run never
    starts before the recorded end of the run whose capacity it uses.
    """
    dialect = connection.dialect.name
    lock = gate_lock(connection)
    reads: list[BoundStatement] = [
        (select_edited(dialect), {}),
        (_promote(dialect), {"now": now}),
        (_limits(dialect), {}),
        (select_first(dialect), {"most": limit}),
        (_select_active_runs(dialect), {"is_bound": has_global_limit}),
        (select_now(dialect), {"now": now}),
        (_select_queue_and_fleet(dialect), {}),
    ]
    groups = [] if claim_request is None else group_statements(dialect, claim_request)
    claims = [] if claim_request is None else claim_statements(connection, claim_request, now)
    results = run_together(connection, *lock, *reads, *groups, *claims)[len(lock) :]
    (
        settings,
        _,
        limit_rows,
        ready_rows,
        active_rows,
        now_rows,
        [(delayed_at, free_slots, parked, *mark)],
        *rest,
    ) = results
    group_rows, claim_rows = rest[: len(groups)], rest[len(groups) :]
    return GateSnapshot(
        now=in_utc(now_rows[0][0]),
        settings=dict(settings),
        limits=_limits_by_group(limit_rows),
        active=active_by_group(active_rows) if has_global_limit or limit_rows else None,
        candidates=list(map(Candidate._make, ready_rows)),
        next_delayed_at=in_utc(delayed_at) if delayed_at else None,
        slots_elsewhere=max(0, free_slots),
        claimed=parse_claimed(claim_rows),
        accepted_group_ids=frozenset(row[0] for row in group_rows[0]) if group_rows else None,
        has_parked=bool(parked),
        fleet_mark=FleetMark(*map(int, mark)),
    )


def load_first(connection: Connection, *, limit: int) -> list[Candidate]:
    """The first ready entries in order."""
    [rows] = run_together(connection, (select_first(connection.dialect.name), {"most": limit}))
    return list(map(Candidate._make, rows))


def count_active_runs(connection: Connection) -> dict[int | None, int]:
    """Count the active runs under the limits, by group (None: without a group), from the rows themselves."""
    statement = _select_active_runs(connection.dialect.name)
    return active_by_group(run_together(connection, (statement, {"is_bound": True}))[0])


def load_limits(connection: Connection) -> dict[int, int]:
    """The limit of each group that has one; a disabled group has 0."""
    return _limits_by_group(connection.execute(_limits(connection.dialect.name)))


def _limits_by_group(rows: Iterable[Any]) -> dict[int, int]:
    return {group_id: limit if enabled else 0 for group_id, limit, enabled in rows}


def active_by_group(rows: Rows) -> dict[int | None, int]:
    return dict(rows)


def load_group_heads(
    connection: Connection, *, capacities: Mapping[int, int], per_group: int, limit: int
) -> list[Candidate]:
    """The first entries of every group in order, up to the capacity of each.

    A full group may have flooded the queue. Reading group by group skips it in one step, where reading the
    queue in order would read all of its entries.
    """
    parameters = {
        "rooms": document({"id": group_id, "room": capacity} for group_id, capacity in capacities.items()),
        "per_group": per_group,
        "most": limit,
    }
    [rows] = run_together(connection, (_heads(connection.dialect.name), parameters))
    return list(map(Candidate._make, rows))


@cache
def _promote(dialect: str) -> Update:
    queue = tables_for(dialect).work_queue
    return (
        update(queue).where(text(DELAYED), queue.c.scheduled_at <= now_parameter(dialect)).values(ready=True)
    )


@cache
def _limits(dialect: str) -> Select[Any, Any, Any]:
    group = tables_for(dialect).manifest_group
    return select(group.c.id, group.c.max_active_jobs, group.c.enabled).where(text(BOUND))


@cache
def _select_active_runs(dialect: str) -> Select[Any, int]:
    t = tables_for(dialect)
    has_group_limit = select(t.manifest_group.c.id).where(text(BOUND)).exists()
    has_ready_entry = select(t.work_queue.c.id).where(text(READY)).exists()
    return (
        select(t.metadata.c.group_id, func.count())
        .where(
            text(UNDER_LIMITS), or_(bindparam("is_bound", type_=Boolean), has_group_limit), has_ready_entry
        )
        .group_by(t.metadata.c.group_id)
    )


@cache
def _select_queue_and_fleet(dialect: str) -> Select[Any]:
    """Select the next delayed time, free slots elsewhere, whether entries are parked, and the fleet mark."""
    t = tables_for(dialect)
    next_delayed = select(func.min(t.work_queue.c.scheduled_at)).where(text(DELAYED))
    slots = select(func.coalesce(func.sum(t.worker.c.concurrency), 0)).where(
        ~t.worker.c.dispatches, text("kind = 'worker'")
    )
    bounded = select(t.metadata.c.id).where(text(PENDING_HERE)).limit(MAX_PENDING_COUNTED).subquery("some")
    pending = select(func.count()).select_from(bounded)
    parked = select(t.work_queue.c.id).where(text(PARKED)).exists()
    free_slots = slots.scalar_subquery() - pending.scalar_subquery()
    return select(next_delayed.scalar_subquery(), free_slots, parked, *fleet_mark(dialect))


def _order(source: Any) -> tuple[ColumnElement[Any], ...]:
    return source.c.group_priority.desc(), source.c.priority.desc(), source.c.created_at, source.c.id


def _columns(queue: Table) -> list[ColumnElement[Any]]:
    """The columns of a candidate and those that order it."""
    return [queue.c[name] for name in dict.fromkeys((*Candidate._fields, *ORDER_COLUMNS))]


@cache
def select_first(dialect: str, names: tuple[str, ...] = Candidate._fields) -> Select[Any]:
    """Select the first `most` ready entries in order."""
    queue = tables_for(dialect).work_queue
    columns = [queue.c[name] for name in names]
    return select(*columns).where(text(READY)).order_by(*_order(queue)).limit(bindparam("most"))


@cache
def _heads(dialect: str) -> Select[Any]:
    queue = tables_for(dialect).work_queue
    capacity = rows_of(dialect, "rooms", {"id": BigId, "room": BigId})
    open_groups = _open_groups(_groups_with_entries(queue), capacity)
    heads = (_heads_in_sqlite if dialect == SQLITE else _heads_by_lateral)(queue, open_groups)
    columns = [column.name for column in _columns(queue)]
    fitting = select(*(heads.c[name] for name in columns)).where(heads.c.place <= heads.c.room)
    ungrouped = select(*_columns(queue)).where(text(READY), queue.c.group_id.is_(None))
    # group_id is null in all of them, but the planner uses the index order only if it is named.
    in_order = ungrouped.order_by(queue.c.group_id, *_order(queue)[1:])
    without_group = in_order.limit(bindparam("most")).subquery("without_group")
    both = fitting.union_all(select(without_group)).subquery("heads")
    selected = [both.c[name] for name in Candidate._fields]
    return select(*selected).order_by(*_order(both)).limit(bindparam("most"))


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
    remaining = func.coalesce(capacity.c.room, bindparam("per_group", type_=BigId))
    return (
        select(present.c.group_id, remaining.label("room"))
        .select_from(present.outerjoin(capacity, capacity.c.id == present.c.group_id))
        .where(present.c.group_id.is_not(None), remaining > 0)
        .subquery("open_groups")
    )


def _heads_by_lateral(queue: Table, open_groups: Any) -> Any:
    head = _heads_of(queue, open_groups).lateral("head")
    joined = open_groups.join(head, true())
    return select(head, open_groups.c.room, _position(head)).select_from(joined).subquery("found")


def _heads_in_sqlite(queue: Table, open_groups: Any) -> Any:
    """SQLite has no LATERAL; use a list of ids for each group."""
    inner = queue.alias("inner_queue")
    ids = _heads_of(inner, open_groups).with_only_columns(inner.c.id).correlate(open_groups)
    joined = open_groups.join(queue, queue.c.id.in_(ids))
    return (
        select(*_columns(queue), open_groups.c.room, _position(queue)).select_from(joined).subquery("found")
    )


def _position(source: Any) -> ColumnElement[int]:
    within_group = func.row_number().over(partition_by=source.c.group_id, order_by=_order(source)[1:])
    return within_group.label("place")


def _heads_of(queue: Any, open_groups: Any) -> Select[Any]:
    return (
        select(*_columns(queue))
        .where(text(READY), queue.c.group_id == open_groups.c.group_id)
        .order_by(*_order(queue)[1:])
        .limit(bindparam("per_group"))
    )


COPIED_COLUMNS = (
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
"""Columns copied from the entry to its run."""

ADMISSION_COLUMNS = ("metadata_id", "submitter", "exempt", "worker_id", "host")
"""Columns of a run that come from its admission."""


class Admission(NamedTuple):
    """An entry to admit: its submitter, and whether it is exempt from the limits.

    With a worker the run starts at once, claimed by that worker on its host; without one it is pending.
    """

    entry_id: int
    submitter: str
    exempt: bool = False
    worker_id: int | None = None
    host: str | None = None
    from_dead_letter: bool = False


class AdmissionResult(NamedTuple):
    """The ids of the inserted runs in order, and the runs that a worker claimed at once."""

    metadata_ids: list[int]
    claimed: list[Claimed]


def admit(connection: Connection, admissions: Sequence[Admission], *, now: datetime) -> AdmissionResult:
    """Mark the entries dispatched, insert their runs, and commit.

    Ids rise in the order of admission: workers claim runs of equal priority by id.
    """
    if not admissions:
        return AdmissionResult([], [])
    dialect = connection.dialect.name
    if any(admission.worker_id is None for admission in admissions):
        announce(connection, Topic.PENDING)
    parameters = {"rows": quick_document(dialect, _rows(connection, admissions)), "now": now}
    mark: list[BoundStatement] = [(_mark_dispatched(dialect), parameters)] if is_sqlite(connection) else []
    link_letters: list[BoundStatement] = (
        [(_link_dead_letters(dialect), parameters)] if _has_dead_letter_retry(admissions) else []
    )
    notify = notifications(connection)
    results = commit_together(connection, *mark, (_insert_runs(dialect), parameters), *link_letters, *notify)
    rows = sorted(results[len(mark)])
    return AdmissionResult(
        metadata_ids=[row[0] for row in rows],
        claimed=[Claimed._make(row[:-1]) for row in rows if row[-1] is not None],
    )


def _has_dead_letter_retry(admissions: Sequence[Admission]) -> bool:
    return any(admission.from_dead_letter for admission in admissions)


def _rows(connection: Connection, admissions: Sequence[Admission]) -> list[dict[str, Any]]:
    rows = [
        {
            "id": admission.entry_id,
            "place": position,
            "submitter": admission.submitter,
            "exempt": admission.exempt,
            "worker_id": admission.worker_id,
            "host": admission.host,
        }
        for position, admission in enumerate(admissions)
    ]
    if is_sqlite(connection):
        ids = reserve_ids(connection, tables(connection).metadata, len(rows))
        for row, metadata_id in zip(rows, ids, strict=True):
            row["metadata_id"] = metadata_id
    return rows


def _admission_rows(dialect: str) -> Any:
    """The admissions with the ids of their runs; PostgreSQL assigns the ids here, in order of admission."""
    t = tables_for(dialect)
    kinds: dict[str, Any] = {"id": BigId, "place": BigId, "worker_id": BigId}
    kinds |= {name: t.metadata.c[name].type for name in ("submitter", "exempt", "host")}
    if dialect == SQLITE:
        return rows_of(dialect, "rows", kinds | {"metadata_id": BigId})
    rows = rows_of(dialect, "rows", kinds)
    in_order = select(rows).order_by(rows.c.place).subquery("in_order")
    return select(in_order, next_id(t.metadata).label("metadata_id")).cte("given")


def _build_mark(dialect: str, admissions: Any) -> Any:
    queue = tables_for(dialect).work_queue
    return (
        update(queue)
        .where(queue.c.id == admissions.c.id, text("status = 'queued'"))
        .values(
            status=sql_literal(QueueStatus.DISPATCHED),
            metadata_id=admissions.c.metadata_id,
            dispatched_at=bindparam("now", type_=Utc),
        )
    )


@cache
def _mark_dispatched(dialect: str) -> Update:
    return _build_mark(dialect, _admission_rows(dialect))


def _run_source(dialect: str) -> Any:
    """The dispatched entries joined to their admissions; on PostgreSQL this is the update that marks them."""
    queue, admissions = tables_for(dialect).work_queue, _admission_rows(dialect)
    columns: list[Any] = [
        *(queue.c[name] for name in COPIED_COLUMNS),
        *(admissions.c[name] for name in ADMISSION_COLUMNS),
    ]
    if dialect != SQLITE:
        return _build_mark(dialect, admissions).returning(*columns).cte("marked")
    joined = select(*columns).join_from(queue, admissions, admissions.c.id == queue.c.id)
    return joined.where(queue.c.metadata_id == admissions.c.metadata_id).subquery("marked")


@cache
def _insert_runs(dialect: str) -> Insert:
    metadata, source = tables_for(dialect).metadata, _run_source(dialect)
    now = bindparam("now", type_=Utc)
    is_claimed = source.c.worker_id.is_not(None)
    columns: dict[str, Any] = {name: source.c[name] for name in (*COPIED_COLUMNS, *ADMISSION_COLUMNS[1:])} | {
        "id": source.c.metadata_id,
        "state": case((is_claimed, sql_literal(State.IN_PROGRESS)), else_=sql_literal(State.PENDING)),
        "created_at": now,
        "started_at": case((is_claimed, now)),
    }
    rows = select(*columns.values()).order_by(source.c.metadata_id)
    statement = insert(metadata).from_select(list(columns), rows)
    return statement.returning(*claim_columns(dialect), metadata.c.worker_id)


@cache
def _link_dead_letters(dialect: str) -> Update:
    """Record on each requeued dead letter the run of its entry."""
    t = tables_for(dialect)
    entries = rows_of(dialect, "rows", {"id": BigId})
    return (
        update(t.dead_letter)
        .where(
            t.dead_letter.c.id == t.work_queue.c.dead_letter_id,
            t.work_queue.c.id == entries.c.id,
            t.work_queue.c.metadata_id.is_not(None),
        )
        .values(retry_metadata_id=t.work_queue.c.metadata_id)
    )
