"""Read the facts for `trax why` and for `trax db doctor`. All reads are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, func, select, text, union_all

from trax.records.states import Origin
from trax.store.dialect import among, id_document
from trax.store.gate import active_by_group
from trax.store.gate_memory import active_runs, select_first
from trax.store.listen import open_connection
from trax.store.queue import parking
from trax.store.runs.claim import PENDING_HERE
from trax.store.schema import tables
from trax.store.schema.manifest import LIVE
from trax.store.schema.metadata import ACTIVE, OUTBOX
from trax.store.schema.work_queue import PARKED, QUEUED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table, TextClause

    from trax.records import WorkQueueEntry


FAILURES_READ: Final = 1_000
MAX_IDS: Final = 10
"""The most ids returned per list."""


class ManifestActivity(NamedTuple):
    """Queued entries, active runs and open dead letters of a manifest."""

    entry_ids: tuple[int, ...]
    metadata_ids: tuple[int, ...]
    dead_letter_ids: tuple[int, ...]


def load_activity(connection: Connection, manifest_id: int) -> ManifestActivity:
    t = tables(connection)
    conditions = (
        (t.work_queue, QUEUED),
        (t.metadata, ACTIVE),
        (t.dead_letter, "status = 'awaiting_intervention'"),
    )
    return ManifestActivity(
        *(
            _ids(connection, table.c.id, table.c.manifest_id == manifest_id, text(condition))
            for table, condition in conditions
        )
    )


def find_active_runs(connection: Connection, group_id: int | None = None) -> tuple[int, ...]:
    """Ids of active runs that count against the limits, of one group or of all."""
    active = active_runs(connection.dialect.name)
    of_group = () if group_id is None else (active.c.group_id == group_id,)
    return _ids(connection, active.c.id, *of_group)


def count_active_runs(connection: Connection) -> dict[int | None, int]:
    """Count the active runs that count against the limits, by group."""
    active = active_runs(connection.dialect.name)
    query = select(active.c.group_id, func.count()).group_by(active.c.group_id)
    return active_by_group([tuple(row) for row in connection.execute(query)])


class QueuePosition(NamedTuple):
    """The values that decide an entry's position in the queue."""

    group_priority: int
    priority: int
    created_at: datetime
    id: int
    group_id: int | None

    @property
    def rank(self) -> tuple[int, int, datetime, int]:
        return -self.group_priority, -self.priority, self.created_at, self.id


def load_position(connection: Connection, entry_id: int) -> QueuePosition | None:
    queue = tables(connection).work_queue
    columns = [queue.c[name] for name in QueuePosition._fields]
    row = connection.execute(select(*columns).where(queue.c.id == entry_id)).one_or_none()
    return QueuePosition(*row) if row else None


def find_ahead_of(connection: Connection, position: QueuePosition, *, most: int) -> list[QueuePosition]:
    """Return the entries ahead of this one, among the first `most` of the queue.

    The head of the queue is compared in Python: a condition in SQL would also scan all later entries.
    """
    rows = connection.execute(select_first(connection.dialect.name, QueuePosition._fields), {"most": most})
    return [entry for entry in (QueuePosition(*row) for row in rows) if entry.rank < position.rank]


def count_used_slots(
    connection: Connection, worker_ids: Sequence[int], *, most: int, waiting_trains: Iterable[str] = ()
) -> int:
    """Count the slots in use on these workers, up to `most`.

    Pending runs of the trains in `waiting_trains` are included: they will take a slot soon.
    """
    metadata = tables(connection).metadata
    is_running = and_(text("state = 'in_progress'"), among(connection, metadata.c.worker_id))
    running = _count(connection, metadata.c.id, is_running, most=most, ids=worker_ids)
    if not (trains := sorted(waiting_trains)):
        return running
    is_pending = and_(text(PENDING_HERE), metadata.c.train.in_(trains))
    return running + _count(connection, metadata.c.id, is_pending, most=most)


class EntryFacts(NamedTuple):
    """Columns missing in `WorkQueueEntry`: the attempt, and what a parked entry waits for."""

    attempt: int
    parked: str | None


def load_entry_facts(connection: Connection, entry_id: int) -> EntryFacts:
    queue = tables(connection).work_queue
    row = connection.execute(select(queue.c.attempt, queue.c.parked).where(queue.c.id == entry_id)).one()
    return EntryFacts(*row)


class LastStop(NamedTuple):
    """The last run of an entry that failed or was snoozed."""

    metadata_id: int
    exception: str | None
    reason: str | None

    @property
    def is_snooze(self) -> bool:
        return self.exception == "Snooze"

    def __str__(self) -> str:
        return f"{self.exception}: {self.reason}"


def load_last_stop(connection: Connection, entry: WorkQueueEntry) -> LastStop | None:
    """Load why an entry is queued again: its last run that failed or was snoozed.

    The retry of a manifest is a new entry; then it is the failure that the manifest refers to.
    """
    t = tables(connection)
    run = t.metadata
    columns = (run.c.id, run.c.failure_exception, run.c.failure_reason)
    newest = union_all(*(_select_newest(run, state) for state in ("failed", "cancelled"))).subquery("newest")
    of_entry = (
        select(*columns)
        .join(newest, newest.c.id == run.c.id)
        .where(run.c.entry_id == entry.id, (run.c.state == "failed") | (run.c.failure_exception == "Snooze"))
        .order_by(run.c.id.desc())
        .limit(1)
    )
    row = connection.execute(of_entry).one_or_none()
    if row is None and entry.origin is Origin.RETRY:
        of_manifest = select(*columns).join(t.manifest, t.manifest.c.failed_metadata_id == run.c.id)
        named = of_manifest.where(t.manifest.c.external_id == entry.manifest)
        row = connection.execute(named).one_or_none()
    return LastStop(*row) if row else None


def _select_newest(run: Table, state: str) -> Select[Any]:
    """Select the latest runs in this state: the runs of an entry have no index."""
    newest = select(run.c.id).where(text(f"state = '{state}'")).order_by(run.c.id.desc()).limit(FAILURES_READ)
    return select(newest.subquery().c.id)


def find_entry_id(connection: Connection, external_id: str) -> int | None:
    queue = tables(connection).work_queue
    return connection.execute(select(queue.c.id).where(queue.c.external_id == external_id)).scalar()


def find_run_id(connection: Connection, external_id: str) -> int | None:
    """Find an active run without an entry by its external id, which has no index."""
    run = tables(connection).metadata
    query = select(run.c.id).where(text(ACTIVE), run.c.external_id == external_id)
    return connection.execute(query.limit(1)).scalar()


def is_handed_over(connection: Connection, metadata_id: int) -> bool:
    """Whether this run was handed over to a submitter."""
    run = tables(connection).metadata
    query = select(run.c.submitted_at.is_not(None)).where(run.c.id == metadata_id)
    return bool(connection.execute(query).scalar())


def _count(
    connection: Connection,
    column: ColumnElement[int],
    condition: ColumnElement[bool] | TextClause,
    *,
    most: int,
    ids: Sequence[int] = (),
) -> int:
    matches = select(column).where(condition).limit(most).subquery("some")
    parameters = {"ids": id_document(ids)} if ids else {}
    return connection.execute(select(func.count()).select_from(matches), parameters).scalar_one()


def _ids(
    connection: Connection, column: ColumnElement[int], *conditions: ColumnElement[bool] | TextClause
) -> tuple[int, ...]:
    """Return some matching ids, sorted in Python: with ORDER BY the planner may scan the whole history."""
    query = select(column).where(*conditions).limit(MAX_IDS)
    return tuple(sorted(connection.execute(query).scalars()))


LISTEN_SECONDS: Final = 2.0
CHANNEL: Final = "trax_doctor"
COUNTED_AT_MOST: Final = 1000

OLDEST_TRANSACTION: Final = text("""
    SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float, query_start, application_name
    FROM pg_stat_activity
    WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
    ORDER BY xact_start LIMIT 1
""")


LOCK_HOLDERS: Final = text("""
    SELECT held.pid, activity.usename, activity.application_name, activity.state, c.relname,
           extract(epoch FROM clock_timestamp() - activity.xact_start)::float,
           (SELECT count(*) FROM pg_locks AS wanted
            WHERE wanted.relation = held.relation AND wanted.database = held.database AND NOT wanted.granted)
    FROM pg_locks AS held JOIN pg_class AS c ON c.oid = held.relation
    LEFT JOIN pg_stat_activity AS activity ON activity.pid = held.pid
    WHERE held.granted AND held.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND c.relnamespace = to_regnamespace('trax') AND right(c.relname, 5) = '_lock'
    ORDER BY c.relname, held.pid
""")


class LockHolder(NamedTuple):
    """A session that holds a lock for which servers wait.

    Without the privilege to see the activity of other users, its state and age are None.
    """

    pid: int
    user: str | None
    application: str | None
    state: str | None
    lock: str
    age_seconds: float | None
    waiting: int

    def is_long(self, seconds: float) -> bool:
        return self.waiting > 0 if self.age_seconds is None else self.age_seconds >= seconds


class OldTransaction(NamedTuple):
    """The oldest open transaction: vacuum cannot remove rows that it may still see."""

    pid: int
    age_seconds: float
    query_started_at: datetime | None
    application: str


class PostgresqlState(NamedTuple):
    """Health data of a PostgreSQL database."""

    oldest: OldTransaction | None
    autovacuum: bool
    backend_pid: int


class SqliteState(NamedTuple):
    """Health data of an SQLite file."""

    journal_mode: str
    synchronous: int
    pages: int
    free_pages: int
    page_bytes: int


class Leftovers(NamedTuple):
    """Workers without a heartbeat, pending runs not claimed in time, and parked entries; bounded."""

    worker_ids: tuple[int, ...]
    pending_ids: tuple[int, ...]
    parked_ids: tuple[int, ...] = ()
    parked_trains: tuple[str, ...] = ()


def load_postgresql_state(connection: Connection) -> PostgresqlState:
    oldest = connection.execute(OLDEST_TRANSACTION).one_or_none()
    return PostgresqlState(
        oldest=OldTransaction(*oldest) if oldest else None,
        autovacuum=connection.execute(text("SHOW autovacuum")).scalar_one() == "on",
        backend_pid=backend_pid(connection),
    )


def load_lock_holders(connection: Connection) -> list[LockHolder]:
    """The sessions that hold the locks of servers at this moment."""
    return [LockHolder(*row) for row in connection.execute(LOCK_HOLDERS)]


def backend_pid(connection: Connection) -> int:
    return connection.execute(select(func.pg_backend_pid())).scalar_one()


def load_sqlite_state(connection: Connection) -> SqliteState:
    names = ("journal_mode", "synchronous", "page_count", "freelist_count", "page_size")
    return SqliteState(*(_pragma(connection, name) for name in names))


class SchedulerWork(NamedTuple):
    """What only a scheduler moves on; each number is bounded."""

    manifests: int
    entries: int
    outbox: int


def load_scheduler_work(connection: Connection) -> SchedulerWork:
    t = tables(connection)
    found = (
        (t.manifest.c.id, and_(text(LIVE), t.manifest.c.enabled)),
        (t.work_queue.c.id, text(QUEUED)),
        (t.metadata.c.id, text(OUTBOX)),
    )
    counts = (_count(connection, column, condition, most=COUNTED_AT_MOST) for column, condition in found)
    return SchedulerWork(*counts)


def load_leftovers(connection: Connection, *, silent_since: datetime, created_before: datetime) -> Leftovers:
    t = tables(connection)
    silent = select(t.worker.c.id).where(t.worker.c.heartbeat_at < silent_since)
    waiting = select(t.metadata.c.id).where(
        text("state = 'pending'"), t.metadata.c.created_at < created_before
    )
    parked = select(t.work_queue.c.id).where(text(PARKED))
    silent_ids, waiting_ids, parked_ids = (
        tuple(connection.execute(query.limit(COUNTED_AT_MOST)).scalars())
        for query in (silent, waiting, parked)
    )
    trains = dict.fromkeys(map(parking.train_of, parking.keys(connection)))
    return Leftovers(silent_ids, waiting_ids, parked_ids, tuple(trains))


def dependents_of_retired(connection: Connection) -> list[str]:
    """Enabled manifests whose parent is retired; bounded."""
    manifest = tables(connection).manifest
    parent = manifest.alias("parent")
    query = (
        select(manifest.c.external_id)
        .join(parent, parent.c.id == manifest.c.depends_on_id)
        .where(parent.c.retired_at.is_not(None), manifest.c.retired_at.is_(None), manifest.c.enabled)
        .order_by(manifest.c.external_id)
    )
    return list(connection.execute(query.limit(COUNTED_AT_MOST)).scalars())


def can_receive_notifications(address: str, *, seconds: float = LISTEN_SECONDS) -> bool:
    """Whether LISTEN works: a pooler in transaction mode accepts it but delivers nothing."""
    with open_connection(address) as listener, open_connection(address) as notifier:
        listener.execute(f"LISTEN {CHANNEL}".encode())
        notifier.execute(f"NOTIFY {CHANNEL}".encode())
        return any(True for _ in listener.notifies(timeout=seconds, stop_after=1))


def _pragma(connection: Connection, name: str) -> Any:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()
