"""What is active, waiting or due now, and what exists twice, for `trax verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import case, func, null, or_, select, text

from trax.records.states import DeadLetterStatus
from trax.store.dialect import last_id, lift_limits
from trax.store.manifests.manifest_due import find_without_next_due
from trax.store.runs.claim import PENDING_HERE
from trax.store.runs.rescue import stale_remote_conditions
from trax.store.schema import tables
from trax.store.schema.work_queue import DELAYED, PARKED, READY, SCHEDULED
from trax.store.types import sql_literal
from trax.store.workers import IN_FLEET

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select

MAX_LISTED: Final = 1_000
"""How many rows a read returns."""


class LostRun(NamedTuple):
    """A run in progress whose worker has no row, or has sent no heartbeat for long."""

    id: int
    worker_id: int


class ServerRow(NamedTuple):
    """A worker or scheduler, and what it accepts."""

    id: int
    kind: str
    dispatches: bool
    concurrency: int
    trains: str
    aliases: str | None
    groups: str | None
    routes: str | None
    settings: str | None
    started_at: datetime
    heartbeat_at: datetime


class WaitingEntry(NamedTuple):
    """A queued entry that has waited for long. `waits_since` is when it should have been seen first."""

    id: int
    train: str
    group_id: int | None
    group: str | None
    priority: int
    created_at: datetime
    waits_since: datetime
    parked: str | None


class WaitingRun(NamedTuple):
    """A run that has been pending for long."""

    id: int
    train: str
    group_id: int | None
    group: str | None
    priority: int
    submitter: str
    waits_since: datetime


class DoubleSchedule(NamedTuple):
    """A manifest with several scheduled entries in the queue."""

    id: int
    external_id: str
    first: int
    last: int
    entries: int


class DuplicateEntry(NamedTuple):
    """Entries with the same external id: the first and the last, and how many."""

    external_id: str
    first: int
    last: int
    entries: int


class DuplicateLetter(NamedTuple):
    """Dead letters of the same run of a job, or open ones of the same manifest."""

    first: int
    last: int
    letters: int
    run_id: int | None
    manifest_id: int | None


def load_servers(connection: Connection, *, alive_since: datetime) -> list[ServerRow]:
    """The live workers and schedulers."""
    worker = tables(connection).worker
    columns = [worker.c[name] for name in ServerRow._fields]
    query = select(*columns).where(text(IN_FLEET), worker.c.heartbeat_at >= alive_since)
    return [ServerRow._make(row) for row in connection.execute(query.order_by(worker.c.id))]


def has_server_since(connection: Connection, *, started_before: datetime, alive_since: datetime) -> bool:
    """Whether a server that dispatches has run since then, and is alive."""
    worker = tables(connection).worker
    is_long = (worker.c.started_at <= started_before, worker.c.heartbeat_at >= alive_since)
    return (
        connection.execute(select(worker.c.id).where(worker.c.dispatches, *is_long).limit(1)).first()
        is not None
    )


def load_lost_runs(
    connection: Connection, *, started_before: datetime, admitted_before: datetime
) -> list[LostRun]:
    """Runs that have been in progress since before this moment, without a worker that was alive after it.

    A run that a worker has claimed ahead has not started: it counts if it was admitted long before.
    """
    t = tables(connection)
    run, worker = t.metadata, t.worker
    live = select(worker.c.id).where(worker.c.id == run.c.worker_id, worker.c.heartbeat_at >= started_before)
    is_lost = (text("state = 'in_progress'"), run.c.worker_id.is_not(None), ~live.exists())
    is_old = or_(
        run.c.started_at < started_before,
        run.c.started_at.is_(None) & (run.c.created_at < admitted_before),
    )
    found = connection.execute(select(run.c.id, run.c.worker_id).where(*is_lost, is_old).limit(MAX_LISTED))
    return [LostRun._make(row) for row in found]


def load_ready(connection: Connection, *, since_before: datetime) -> list[WaitingEntry]:
    """The first ready entries in the order of the gate, of those that have existed since before then."""
    queue = tables(connection).work_queue
    since = case((queue.c.scheduled_at > queue.c.created_at, queue.c.scheduled_at), else_=queue.c.created_at)
    query = _select_waiting(connection, since).where(text(READY), since < since_before)
    in_order = (queue.c.group_priority.desc(), queue.c.priority.desc(), queue.c.created_at, queue.c.id)
    return _load_waiting(connection, query.order_by(*in_order))


def load_delayed(connection: Connection, *, since_before: datetime) -> list[WaitingEntry]:
    """Delayed entries whose time came before then."""
    queue = tables(connection).work_queue
    query = _select_waiting(connection, queue.c.scheduled_at)
    is_late = (text(DELAYED), queue.c.scheduled_at < since_before)
    return _load_waiting(connection, query.where(*is_late).order_by(queue.c.scheduled_at))


def load_parked(connection: Connection, *, since_before: datetime) -> list[WaitingEntry]:
    """Entries that have been parked since before then."""
    queue = tables(connection).work_queue
    query = _select_waiting(connection, queue.c.parked_at)
    is_late = (text(PARKED), queue.c.parked_at < since_before)
    return _load_waiting(connection, query.where(*is_late).order_by(queue.c.parked_at))


def _select_waiting(connection: Connection, since: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    t = tables(connection)
    queue, group = t.work_queue, t.manifest_group
    own = ("id", "train", "group_id")
    return select(
        *(queue.c[name] for name in own),
        group.c.name,
        queue.c.priority,
        queue.c.created_at,
        since.label("waits_since"),
        queue.c.parked,
    ).outerjoin(group, group.c.id == queue.c.group_id)


def _load_waiting(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[WaitingEntry]:
    return [WaitingEntry._make(row) for row in connection.execute(query.limit(MAX_LISTED))]


def load_pending(connection: Connection, *, since_before: datetime) -> list[WaitingRun]:
    """Pending runs for local workers that were admitted before then, in the order of claims."""
    run = tables(connection).metadata
    query = _select_pending(connection, run.c.created_at)
    query = query.where(text(PENDING_HERE), run.c.created_at < since_before)
    return _load_pending(connection, query.order_by(run.c.priority.desc(), run.c.id))


def load_handed_over(connection: Connection, *, since_before: datetime) -> list[WaitingRun]:
    """Runs for other submitters that have been pending since before then."""
    run = tables(connection).metadata
    since = func.coalesce(run.c.submitted_at, run.c.handing_over_until, run.c.created_at)
    query = _select_pending(connection, since).where(*stale_remote_conditions(run, since_before))
    return _load_pending(connection, query.order_by(run.c.id))


def _select_pending(connection: Connection, since: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    t = tables(connection)
    run, group = t.metadata, t.manifest_group
    own = ("id", "train", "group_id")
    return select(
        *(run.c[name] for name in own), group.c.name, run.c.priority, run.c.submitter, since.label("since")
    ).outerjoin(group, group.c.id == run.c.group_id)


def _load_pending(connection: Connection, query: Select[*tuple[Any, ...]]) -> list[WaitingRun]:
    return [WaitingRun._make(row) for row in connection.execute(query.limit(MAX_LISTED))]


def load_double_schedules(connection: Connection) -> list[DoubleSchedule]:
    """Manifests with more than one entry from their schedule in the queue."""
    t = tables(connection)
    queue, manifest = t.work_queue, t.manifest
    several = (
        select(
            queue.c.manifest_id,
            func.min(queue.c.id).label("first"),
            func.max(queue.c.id).label("last"),
            func.count().label("entries"),
        )
        .where(text(SCHEDULED), queue.c.manifest_id.is_not(None))
        .group_by(queue.c.manifest_id)
        .having(func.count() > 1)
        .limit(MAX_LISTED)
        .subquery("several")
    )
    query = select(manifest.c.id, manifest.c.external_id, several.c.first, several.c.last, several.c.entries)
    rows = connection.execute(query.join(several, several.c.manifest_id == manifest.c.id))
    return [DoubleSchedule._make(row) for row in rows]


def load_unattended(connection: Connection, *, due_before: datetime) -> list[tuple[int, datetime | None]]:
    """The manifests that were due then or have no next due time, and when they were due.

    For some of them that is correct; their states show for which.
    """
    manifest = tables(connection).manifest
    is_overdue = (manifest.c.next_due_at < due_before, manifest.c.enabled, manifest.c.retired_at.is_(None))
    query = select(manifest.c.id, manifest.c.next_due_at).where(*is_overdue).order_by(manifest.c.id)
    overdue = [(row.id, row.next_due_at) for row in connection.execute(query)]
    return [*overdue, *((manifest_id, None) for manifest_id in find_without_next_due(connection))]


def find_duplicate_entries(connection: Connection, *, after: int, last: int) -> list[DuplicateEntry]:
    """Entries with ids above `after`, up to `last`, that have the external id of another one.

    One scan of the column: PostgreSQL hashes or sorts it within `work_mem`, SQLite reads an index in order.
    """
    lift_limits(connection)
    queue = tables(connection).work_queue
    first, highest = func.min(queue.c.id), func.max(queue.c.id)
    query = (
        select(queue.c.external_id, first, highest, func.count())
        .where(queue.c.id > after, queue.c.id <= last)
        .group_by(queue.c.external_id)
        .having(func.count() > 1)
        .limit(MAX_LISTED)
    )
    return sorted((DuplicateEntry._make(row) for row in connection.execute(query)), key=lambda row: row.first)


def find_duplicate_letters(connection: Connection) -> list[DuplicateLetter]:
    """Dead letters of the same last run of a job, and open ones of the same manifest."""
    letter = tables(connection).dead_letter
    numbers = (func.min(letter.c.id), func.max(letter.c.id), func.count())
    run_id, manifest_id = letter.c.last_metadata_id, letter.c.manifest_id
    is_open = letter.c.status == sql_literal(DeadLetterStatus.AWAITING_INTERVENTION)
    of_runs = select(*numbers, run_id, null()).where(manifest_id.is_(None), run_id.is_not(None))
    of_manifests = select(*numbers, null(), manifest_id).where(is_open, manifest_id.is_not(None))
    queries = (of_runs.group_by(run_id), of_manifests.group_by(manifest_id))
    return [
        DuplicateLetter._make(row)
        for query in queries
        for row in connection.execute(query.having(func.count() > 1).limit(MAX_LISTED))
    ]


def load_workers(connection: Connection) -> tuple[int, dict[int, datetime]]:
    """The highest id that a worker ever had, and since when each that has a row has run."""
    worker = tables(connection).worker
    rows = connection.execute(select(worker.c.id, worker.c.started_at)).all()
    return last_id(connection, worker), {row.id: row.started_at for row in rows}
