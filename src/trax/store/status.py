"""Read the status, the live view, gauges for metrics, and change marks. Each part is a bounded index read."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, literal, select, text, true

from trax.bounds import PRIORITY_MAX
from trax.records.listing import COUNT_LIMIT
from trax.records.states import State
from trax.records.stats import (
    Gauges,
    GroupQueue,
    LastFailure,
    LiveView,
    NextDue,
    RecentRun,
    RunningTrain,
    RunTotals,
    Span,
)
from trax.records.status import ChangeMarks, ChangeTag, Status
from trax.store import workers
from trax.store.dialect import document, rows_of
from trax.store.queue import parking
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE
from trax.store.schema.work_queue import DELAYED, PARKED, READY
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import (
        Column,
        ColumnElement,
        Connection,
        FromClause,
        ScalarSelect,
        Subquery,
        Table,
        TextClause,
    )

    from trax.store.schema import Tables


SHOWN_TRAINS: Final = 10
RECENT: Final = timedelta(hours=1)


def load_status(connection: Connection, *, now: datetime, lost_after: timedelta) -> Status:
    """Read counts of waiting and running work, and the live workers and servers."""
    t = tables(connection)
    counts: dict[str, ScalarSelect[Any]] = {
        "ready": _count(t.work_queue, READY),
        "delayed": _count(t.work_queue, DELAYED),
        "parked": _count(t.work_queue, PARKED),
        "pending": _count(t.metadata, "state = 'pending'"),
        "pending_local": _count(t.metadata, "state = 'pending' AND submitter = 'local'"),
        "running": _count(t.metadata, "state = 'in_progress'"),
        "failed_last_hour": _count_failed(t, since=now - RECENT),
        "dead_letters": _count(t.dead_letter, "status = 'awaiting_intervention'"),
        "manifests_enabled": _count_manifests(t, enabled=True),
        "manifests_disabled": _count_manifests(t, enabled=False),
        "next_due_at": select(func.min(t.manifest.c.next_due_at))
        .where(t.manifest.c.next_due_at.is_not(None))  # as in the partial index
        .scalar_subquery(),
        "next_delayed_at": select(func.min(t.work_queue.c.scheduled_at))
        .where(text(DELAYED))
        .scalar_subquery(),
        "ready_since": _ready_since(t),
    }
    row = connection.execute(select(*(count.label(name) for name, count in counts.items()))).one()
    live_workers = [
        worker for worker in workers.load_list(connection) if worker.heartbeat_at >= now - lost_after
    ]
    numbers = dict(zip(counts, row, strict=True))
    keys = parking.keys(connection, limit=SHOWN_TRAINS) if numbers["parked"] else []
    trains = tuple(dict.fromkeys(map(parking.train_of, keys)))
    servers = tuple(workers.servers(connection, alive_since=now - lost_after))
    return Status(
        now=now,
        workers=tuple(live_workers),
        servers=servers,
        failing_loops=tuple(workers.load_failing_loops(connection, alive_since=now - lost_after)),
        parked_trains=trains,
        **numbers,
    )


def _count(table: Table, condition: str) -> ScalarSelect[int]:
    some = select(table.c.id).select_from(table).where(text(condition)).limit(COUNT_LIMIT).subquery()
    return select(func.count()).select_from(some).scalar_subquery()


def _count_failed(t: Tables, *, since: datetime) -> ScalarSelect[int]:
    """Count within the latest failures only, to bound the read."""
    latest = (
        select(t.metadata.c.ended_at)
        .where(text("state = 'failed'"))
        .order_by(t.metadata.c.id.desc())
        .limit(COUNT_LIMIT)
        .subquery()
    )
    return select(func.count()).select_from(latest).where(latest.c.ended_at >= since).scalar_subquery()


def _count_manifests(t: Tables, *, enabled: bool) -> ScalarSelect[int]:
    """Count within the first manifests only: `enabled` has no index."""
    some = select(t.manifest.c.enabled).where(text(LIVE)).limit(COUNT_LIMIT).subquery()
    return select(func.count()).select_from(some).where(some.c.enabled.is_(enabled)).scalar_subquery()


def _ready_since(t: Tables) -> ScalarSelect[datetime]:
    queue = t.work_queue.c
    since = func.coalesce(queue.scheduled_at, queue.created_at, type_=queue.created_at.type)
    order = (queue.group_priority.desc(), queue.priority.desc(), queue.created_at, queue.id)
    return select(since).where(text(READY)).order_by(*order).limit(1).scalar_subquery()


MINUTE: Final = timedelta(minutes=1)
MAX_TRAINS: Final = 6
MAX_MANIFESTS: Final = 3


def read_live_view(
    connection: Connection, trains: Sequence[str], *, now: datetime, lost_after: timedelta
) -> LiveView:
    """Read the live view; runs that ended in the last minute are counted for these trains."""
    t = tables(connection)
    ended = _count_ended(connection, t, trains, since=now - MINUTE)
    return LiveView(
        status=load_status(connection, now=now, lost_after=lost_after),
        running=_active_trains(connection, t),
        completed=ended.get(State.COMPLETED, 0),
        failed=ended.get(State.FAILED, 0),
        next_due=_next_due(connection, t),
        last_failure=_last_failure(connection, t),
    )


def _active_trains(connection: Connection, t: Tables) -> tuple[RunningTrain, ...]:
    runs = (
        select(t.metadata.c.train, t.metadata.c.progress)
        .where(text("state = 'in_progress'"))
        .limit(COUNT_LIMIT)
        .subquery()
    )
    count = func.count()
    query = select(runs.c.train, count, func.max(runs.c.progress)).group_by(runs.c.train)
    rows = connection.execute(query.order_by(count.desc(), runs.c.train).limit(MAX_TRAINS))
    return tuple(RunningTrain(*row) for row in rows)


def _count_ended(
    connection: Connection, t: Tables, trains: Sequence[str], *, since: datetime
) -> dict[State, int]:
    """Count ended runs by state; the train names are needed for the index on (train, ended_at)."""
    metadata = t.metadata.c
    runs = (
        select(metadata.state)
        .where(metadata.train.in_(trains), metadata.ended_at >= since)
        .limit(COUNT_LIMIT)
        .subquery()
    )
    rows = connection.execute(select(runs.c.state, func.count()).group_by(runs.c.state))
    return {State(state): count for state, count in rows}


def _next_due(connection: Connection, t: Tables) -> tuple[NextDue, ...]:
    manifest = t.manifest.c
    query = select(manifest.external_id, manifest.next_due_at).where(manifest.next_due_at.is_not(None))
    rows = connection.execute(query.order_by(manifest.next_due_at).limit(MAX_MANIFESTS))
    return tuple(NextDue(*row) for row in rows)


def _last_failure(connection: Connection, t: Tables) -> LastFailure | None:
    metadata = t.metadata.c
    exception_name = func.coalesce(metadata.failure_exception, "")
    query = select(metadata.id, metadata.train, metadata.ended_at, exception_name, metadata.failure_reason)
    row = connection.execute(
        query.where(text("state = 'failed'")).order_by(metadata.id.desc()).limit(1)
    ).one_or_none()
    if row is None:
        return None
    metadata_id, train, at, exception, reason = row
    return LastFailure(metadata_id, train, at, f"{exception}: {reason}" if reason else exception)


MAX_GROUPS: Final = 100
MAX_ENTRIES: Final = 100_000
"""How many entries are counted over all groups: with 100 groups, about 1000 of each."""
RECENT_RUNS: Final = 1000


def load_gauges(connection: Connection, *, now: datetime, totals_until: datetime | None) -> Gauges:
    """Read all gauges; `totals_until` is where the last read of totals ended, so none is counted twice."""
    newest = _newest_minute(connection)
    return Gauges(
        now=now,
        queues=tuple(_queues(connection)),
        recent=tuple(_recent_runs(connection)),
        ended=tuple(_totals_since(connection, totals_until)),
        totals_until=newest,
    )


def _queues(connection: Connection) -> list[GroupQueue]:
    """Count each group separately by index, so that a flooded group does not use up the bound of another."""
    t = tables(connection)
    group, queue = t.manifest_group.c, t.work_queue
    named = select(group.id, group.name).order_by(group.id).limit(MAX_GROUPS).subquery("named")
    groups = connection.execute(select(func.count()).select_from(named)).scalar_one()
    bound = min(COUNT_LIMIT, MAX_ENTRIES // (groups + 1))
    in_none, in_group = queue.c.group_id.is_(None), queue.c.group_id == named.c.id
    none = select(literal(""), *_queue_length_and_age(connection, in_none, bound))
    each = select(named.c.name, *_queue_length_and_age(connection, in_group, bound, named)).order_by(
        named.c.id
    )
    parameters = {"priorities": document({"number": number} for number in range(PRIORITY_MAX + 1))}
    return [GroupQueue(*row) for query in (none, each) for row in connection.execute(query, parameters)]


def _queue_length_and_age(
    connection: Connection, in_group: ColumnElement[bool], limit: int, *correlated: FromClause
) -> tuple[ScalarSelect[int], ScalarSelect[Any]]:
    """Count the ready entries of a group, and find the oldest: the first of each priority is read."""
    queue = tables(connection).work_queue
    priorities = rows_of(connection.dialect.name, "priorities", {"number": Integer()})
    moment = queue.c.created_at.type
    ready = (
        select(queue.c.group_id).where(text(READY), in_group).limit(limit).correlate(*correlated).subquery()
    )
    first = (
        select(func.coalesce(queue.c.scheduled_at, queue.c.created_at, type_=moment))
        .where(text(READY), in_group, queue.c.priority == priorities.c.number)
        .order_by(queue.c.created_at, queue.c.id)
        .limit(1)
        .correlate(priorities, *correlated)
        .scalar_subquery()
    )
    oldest = select(func.min(first, type_=moment)).select_from(priorities)
    return select(func.count()).select_from(ready).scalar_subquery(), oldest.scalar_subquery()


def _recent_runs(connection: Connection) -> list[RecentRun]:
    run = tables(connection).metadata.c
    columns = (run.train, run.state, run.created_at, run.started_at, run.ended_at)
    rows = connection.execute(select(*columns).order_by(run.id.desc()).limit(RECENT_RUNS))
    return [
        RecentRun(
            row.train,
            row.state,
            _seconds(row.created_at, row.started_at),
            _seconds(row.started_at, row.ended_at),
        )
        for row in rows
    ]


def _totals_since(connection: Connection, after: datetime | None) -> list[tuple[str, RunTotals]]:
    """The totals of the minutes since; none at the first read, which only finds the starting point."""
    if after is None:
        return []
    tally = tables(connection).tally.c
    columns = (tally.train, tally.completed, tally.failed, tally.cancelled, tally.seconds)
    rows = connection.execute(
        select(*columns).where(tally.span == sql_literal(Span.MINUTE), tally.at > after)
    )
    return [(train, RunTotals(*sums)) for train, *sums in rows]


def _newest_minute(connection: Connection) -> datetime | None:
    tally = tables(connection).tally.c
    newest = select(func.max(tally.at, type_=tally.at.type)).where(tally.span == sql_literal(Span.MINUTE))
    return connection.execute(newest).scalar()


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


MAX_ROWS: Final = 500


def read_change_marks(connection: Connection) -> ChangeMarks:
    t = tables(connection)
    worker, setting = t.worker.c, t.setting.c
    parts: dict[str, tuple[ChangeTag, Subquery]] = {
        "runs": (ChangeTag.EXECUTIONS, _latest_id(t.metadata)),
        "pending": (ChangeTag.EXECUTIONS, _rows_mark(t.metadata, "state = 'pending'")),
        "running": (ChangeTag.EXECUTIONS, _progress_mark(t.metadata)),
        "entries": (ChangeTag.QUEUE, _latest_id(t.work_queue)),
        "ready": (ChangeTag.QUEUE, _rows_mark(t.work_queue, READY)),
        "delayed": (ChangeTag.QUEUE, _rows_mark(t.work_queue, DELAYED)),
        "parked": (ChangeTag.QUEUE, _rows_mark(t.work_queue, PARKED)),
        "manifests": (ChangeTag.MANIFESTS, _latest_id(t.manifest)),
        "due": (
            ChangeTag.MANIFESTS,
            _index_end(func.min(t.manifest.c.next_due_at), text("next_due_at IS NOT NULL")),
        ),
        "letters": (ChangeTag.DEAD_LETTERS, _latest_id(t.dead_letter)),
        "awaiting": (ChangeTag.DEAD_LETTERS, _rows_mark(t.dead_letter, "status = 'awaiting_intervention'")),
        "settings": (ChangeTag.SETTINGS, select(func.count(), func.max(setting.updated_at)).subquery()),
        "workers": (ChangeTag.WORKERS, _table_mark(worker.id, worker.concurrency)),
        "actions": (ChangeTag.MANIFESTS, _latest_id(t.audit)),  # disabling a manifest changes no other mark
        "audit": (ChangeTag.AUDIT, _latest_id(t.audit)),
    }
    columns = [
        column.label(f"{name}_{at}") for name, (_, part) in parts.items() for at, column in enumerate(part.c)
    ]
    first, *others = (part for _, part in parts.values())
    together: FromClause = reduce(lambda left, right: left.join(right, true()), others, first)
    row = iter(connection.execute(select(*columns).select_from(together)).one())
    marks: dict[ChangeTag, tuple[Any, ...]] = {}
    for tag, part in parts.values():
        marks[tag] = (*marks.get(tag, ()), *(next(row) for _ in part.c))
    return marks


def _latest_id(table: Table) -> Subquery:
    return _index_end(func.max(table.c.id))


def _index_end(end: ColumnElement[Any], *conditions: TextClause) -> Subquery:
    """Read the end of an index. SQLite needs a scalar subquery for that; otherwise it scans the index."""
    return select(select(end).where(*conditions).scalar_subquery().label("end")).subquery()


def _table_mark(*columns: Column[Any]) -> Subquery:
    """Row count and column sums of a small table."""
    return select(func.count(), *map(func.sum, columns)).subquery()


def _rows_mark(table: Table, condition: str) -> Subquery:
    """Row count and sum of ids: the sum changes when one row is replaced by another."""
    some = select(table.c.id).select_from(table).where(text(condition)).limit(MAX_ROWS).subquery()
    return select(func.count().label("number"), func.sum(some.c.id).label("sum")).subquery()


def _progress_mark(metadata: Table) -> Subquery:
    """Runs in progress and their progress."""
    column = metadata.c
    columns = (column.id, column.progress, column.junction_started_at, column.cancel_requested)
    some = select(*columns).where(text("state = 'in_progress'")).limit(MAX_ROWS).subquery()
    cancels = func.count().filter(some.c.cancel_requested)
    return select(
        func.count().label("number"),
        func.sum(some.c.id).label("sum"),
        func.sum(some.c.progress).label("progress"),
        func.max(some.c.junction_started_at).label("junction"),
        cancels.label("cancels"),
    ).subquery()
