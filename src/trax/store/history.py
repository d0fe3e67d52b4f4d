"""Read the whole history in chunks, along the ids, for `trax verify`. Each read is one short transaction."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import bindparam, func, or_, select, text

from trax.records.audit import DECLARED_SETTINGS
from trax.records.states import Origin, ScheduleType, State
from trax.store.dialect import among, id_document, is_sqlite, last_id
from trax.store.manifests.manifest_due import find_without_next_due, timing_of
from trax.store.schema import tables, tables_for
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select, Table

    from trax.records.schedule import Timing

P = ParamSpec("P")
T = TypeVar("T")

LIMIT_ACTIONS: Final = (
    "groups.update",
    "groups.declare",
    "settings.update",
    "settings.reset",
    DECLARED_SETTINGS,
)
MAX_LISTED: Final = 1_000
"""How many rows a read of what is active now returns."""


class HistoryEnd(NamedTuple):
    """The highest id of each table at the start of the verification: rows written later are not read."""

    now: datetime
    run_id: int
    entry_id: int
    letter_id: int
    line_id: int


class RunRow(NamedTuple):
    """A run, and the entry with its external id, if there is one."""

    id: int
    manifest_id: int | None
    group_id: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    exempt: bool
    state: str
    submitter: str | None
    external_id: str
    has_failure: bool
    entry_id: int | None
    entry_status: str | None
    entry_run_id: int | None
    entry_attempt: int | None


class EntryRow(NamedTuple):
    """An entry, and the run it points to, if there is one; `unique_key` also after it was released."""

    id: int
    manifest_id: int | None
    group_id: int | None
    created_at: datetime
    scheduled_for: datetime | None
    dispatched_at: datetime | None
    attempt: int
    train: str
    origin: str
    unique_key: str | None
    status: str
    metadata_id: int | None
    run_id: int | None
    is_own_run: bool | None
    run_state: str | None
    run_attempt: int | None
    run_created_at: datetime | None
    run_ended_at: datetime | None
    manifest_row: int | None
    group_row: int | None


class LetterRow(NamedTuple):
    """A dead letter, whether an entry or a run came from it, and whether its last run still exists."""

    id: int
    manifest_id: int | None
    group_id: int | None
    status: str
    unique_key: str | None
    dead_lettered_at: datetime
    resolved_at: datetime | None
    retry_metadata_id: int | None
    has_entry: bool
    last_run_id: int | None
    group_row: int | None


class ActiveSpan(NamedTuple):
    """A run that was admitted before a moment and had not ended then."""

    id: int
    group_id: int | None
    created_at: datetime
    ended_at: datetime | None
    submitter: str | None


class GroupRow(NamedTuple):
    """A group as it is now."""

    id: int
    name: str
    max_active_jobs: int | None
    enabled: bool
    created_at: datetime
    updated_at: datetime


class LimitChange(NamedTuple):
    """An entry of the audit log that changed a limit."""

    id: int
    at: datetime
    action: str
    noun: str
    ids: Sequence[str]
    before: Any
    after: Any
    restores: Any
    expects: Any


class LostRun(NamedTuple):
    """A run in progress whose worker has no row, or has sent no heartbeat for long."""

    id: int
    worker_id: int
    started_at: datetime


class CrowdedManifest(NamedTuple):
    """A manifest with more scheduled runs active than it may have."""

    id: int
    external_id: str
    max_instances: int
    runs: int


class TimedManifest(NamedTuple):
    """A manifest with a cron schedule or an interval, and when it was last changed."""

    id: int
    external_id: str
    group_id: int
    changed_at: datetime
    timing: Timing
    was_queued: bool = True
    """Whether an entry was ever queued for it, also if that entry has been deleted since."""


def read_only(
    connection: Connection,
    function: Callable[Concatenate[Connection, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function in a transaction that is read-only on PostgreSQL."""
    if not is_sqlite(connection):
        connection.execute(text("SET TRANSACTION READ ONLY"))
    return function(connection, *args, **kwargs)


def load_end(connection: Connection, now: datetime) -> HistoryEnd:
    t = tables(connection)
    highest = [
        select(func.coalesce(func.max(table.c.id), 0)).scalar_subquery()
        for table in (t.metadata, t.work_queue, t.dead_letter, t.log)
    ]
    return HistoryEnd(now, *connection.execute(select(*highest)).one())


def load_runs(connection: Connection, *, after: int, last: int, limit: int) -> list[RunRow]:
    """The next runs by id: that is the order of admission."""
    parameters = {"after": after, "last": last, "most": limit}
    rows = connection.execute(_select_runs(connection.dialect.name), parameters).all()
    return [RunRow._make(row) for row in rows]


def load_entries(connection: Connection, *, after: int, last: int, limit: int) -> list[EntryRow]:
    parameters = {"after": after, "last": last, "most": limit}
    rows = connection.execute(_select_entries(connection.dialect.name), parameters).all()
    return [EntryRow._make(row) for row in rows]


def load_entries_of(
    connection: Connection, manifests: tuple[int, int], *, after: int, last: int, limit: int
) -> list[EntryRow]:
    """The next entries by id of manifests whose ids are between these two."""
    parameters = {"after": after, "last": last, "most": limit, "first": manifests[0], "end": manifests[1]}
    rows = connection.execute(_select_entries_of(connection.dialect.name), parameters).all()
    return [EntryRow._make(row) for row in rows]


def load_letters(connection: Connection, *, after: int, last: int, limit: int) -> list[LetterRow]:
    parameters = {"after": after, "last": last, "most": limit}
    rows = connection.execute(_select_letters(connection.dialect.name), parameters)
    return [LetterRow._make(row) for row in rows]


def load_orphaned_lines(connection: Connection, *, after: int, up_to: int) -> tuple[int, list[int]]:
    """How many log lines have these ids, and those of them whose run does not exist."""
    t = tables(connection)
    run = select(t.metadata.c.id).where(t.metadata.c.id == t.log.c.metadata_id)
    is_orphan = (t.log.c.metadata_id.is_not(None), ~run.exists())
    in_span = (t.log.c.id > after, t.log.c.id <= up_to)
    count = connection.execute(select(func.count()).select_from(t.log).where(*in_span)).scalar_one()
    query = select(t.log.c.id).where(*in_span, *is_orphan).order_by(t.log.c.id)
    return count, list(connection.execute(query).scalars())


def load_active_at(connection: Connection, moment: datetime, *, after: int, up_to: int) -> list[ActiveSpan]:
    """The runs under the limits with these ids that had not ended at that moment."""
    run = tables(connection).metadata
    is_open = or_(run.c.ended_at.is_(None), run.c.ended_at > moment)
    columns = [run.c[name] for name in ActiveSpan._fields]
    query = select(*columns).where(run.c.id > after, run.c.id <= up_to, ~run.c.exempt, is_open)
    return [ActiveSpan._make(row) for row in connection.execute(query.order_by(run.c.id))]


def find_first(connection: Connection, table_name: str, moment: datetime, *, last: int) -> int:
    """The id below the first row that was created at or after the moment, by bisection.

    Rows are created in the order of their ids, so this needs a few dozen steps and no index.
    """
    table: Table = getattr(tables(connection), table_name)
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        query = select(table.c.id, table.c.created_at).where(table.c.id > middle, table.c.id <= last)
        row = connection.execute(query.order_by(table.c.id).limit(1)).one_or_none()
        if row is None or row.created_at >= moment:
            high = middle
        else:
            low = row.id
    return low


def load_groups(connection: Connection) -> list[GroupRow]:
    group = tables(connection).manifest_group
    query = select(*(group.c[name] for name in GroupRow._fields)).order_by(group.c.id)
    return [GroupRow._make(row) for row in connection.execute(query)]


def load_limit_changes(connection: Connection) -> list[LimitChange]:
    """The entries of the audit log about limits, oldest first."""
    audit = tables(connection).audit
    columns = [audit.c[name] for name in LimitChange._fields]
    query = select(*columns).where(audit.c.action.in_(LIMIT_ACTIONS)).order_by(audit.c.id)
    return [_limit_change(row) for row in connection.execute(query)]


def _limit_change(row: Row[*tuple[Any, ...]]) -> LimitChange:
    change = LimitChange._make(row)
    texts = {name: getattr(change, name) for name in ("ids", "before", "after", "restores", "expects")}
    return change._replace(**{name: json.loads(value) for name, value in texts.items() if value is not None})


def is_audit_complete(connection: Connection) -> bool:
    """Whether no entry of the audit log was deleted: the oldest are deleted first; their ids are missing."""
    audit = tables(connection).audit
    is_declared = audit.c.action == DECLARED_SETTINGS
    first = connection.execute(select(func.min(audit.c.id)).where(~is_declared)).scalar()
    before = [] if first is None else [audit.c.id < first]
    kept = connection.execute(select(func.count()).where(is_declared, *before)).scalar_one()
    return kept == (last_id(connection, audit) if first is None else first - 1)


def load_stored_setting(connection: Connection, name: str) -> tuple[str, datetime] | None:
    """The stored value of a setting, as JSON text, and when it was written."""
    setting = tables(connection).setting
    row = connection.execute(
        select(setting.c.value, setting.c.updated_at).where(setting.c.name == name)
    ).one_or_none()
    return None if row is None else (row.value, row.updated_at)


def are_letters_complete(connection: Connection) -> bool:
    """Whether no dead letter was deleted: no id is missing."""
    letter = tables(connection).dead_letter
    return connection.execute(select(func.count(letter.c.id))).scalar_one() == last_id(connection, letter)


def find_dead_lettered(connection: Connection, run_ids: Sequence[int]) -> set[int]:
    """Which of these runs are the last one of a dead letter."""
    letter = tables(connection).dead_letter
    query = select(letter.c.last_metadata_id).where(among(connection, letter.c.last_metadata_id))
    return set(connection.execute(query, {"ids": id_document(run_ids)}).scalars())


def has_server_since(connection: Connection, *, started_before: datetime, alive_since: datetime) -> bool:
    """Whether a server that dispatches has run since then, and is alive."""
    worker = tables(connection).worker
    is_long = (worker.c.started_at <= started_before, worker.c.heartbeat_at >= alive_since)
    return (
        connection.execute(select(worker.c.id).where(worker.c.dispatches, *is_long).limit(1)).first()
        is not None
    )


def load_lost_runs(connection: Connection, *, started_before: datetime) -> list[LostRun]:
    """Runs that have been in progress since before this moment, without a worker that was alive after it."""
    t = tables(connection)
    run, worker = t.metadata, t.worker
    live = select(worker.c.id).where(worker.c.id == run.c.worker_id, worker.c.heartbeat_at >= started_before)
    is_lost = (text("state = 'in_progress'"), run.c.worker_id.is_not(None), ~live.exists())
    query = select(run.c.id, run.c.worker_id, run.c.started_at).where(*is_lost)
    found = connection.execute(query.where(run.c.started_at < started_before).limit(MAX_LISTED))
    return [LostRun._make(row) for row in found]


def load_crowded_manifests(connection: Connection) -> list[CrowdedManifest]:
    """Manifests with more active runs from their schedule than `max_instances`.

    Not those that were changed since the last of the entries: `max_instances` may have been lowered.
    """
    t = tables(connection)
    run, entry, manifest = t.metadata, t.work_queue, t.manifest
    active = run.c.state.in_((sql_literal(State.PENDING), sql_literal(State.IN_PROGRESS)))
    scheduled = entry.c.origin.in_((Origin.SCHEDULE.value, Origin.RETRY.value))
    runs = func.count().label("runs")
    query = (
        select(manifest.c.id, manifest.c.external_id, manifest.c.max_instances, runs)
        .join_from(run, entry, entry.c.id == run.c.entry_id)
        .join(manifest, manifest.c.id == run.c.manifest_id)
        .where(active, run.c.manifest_id.is_not(None), scheduled)
        .group_by(manifest.c.id, manifest.c.external_id, manifest.c.max_instances, manifest.c.updated_at)
        .having(runs > manifest.c.max_instances, func.max(entry.c.created_at) > manifest.c.updated_at)
    )
    return [CrowdedManifest._make(row) for row in connection.execute(query.limit(MAX_LISTED))]


def load_unattended(connection: Connection, *, due_before: datetime) -> list[tuple[int, datetime | None]]:
    """The manifests that were due then or have no next due time, and when they were due.

    For some of them that is correct; their states show for which.
    """
    manifest = tables(connection).manifest
    is_overdue = (manifest.c.next_due_at < due_before, manifest.c.enabled, manifest.c.retired_at.is_(None))
    query = select(manifest.c.id, manifest.c.next_due_at).where(*is_overdue).order_by(manifest.c.id)
    overdue = [(row.id, row.next_due_at) for row in connection.execute(query)]
    return [*overdue, *((manifest_id, None) for manifest_id in find_without_next_due(connection))]


def load_timed_manifests(connection: Connection, *, after: int, limit: int) -> list[TimedManifest]:
    """The next enabled manifests without variance with a cron schedule, or an interval after each run."""
    t = tables(connection)
    manifest, group = t.manifest, t.manifest_group
    is_interval = manifest.c.schedule_type == sql_literal(ScheduleType.INTERVAL)
    follows_runs = is_interval & ~manifest.c.anchored & (manifest.c.max_instances == 1)
    query = (
        select(manifest)
        .join(group, group.c.id == manifest.c.group_id)
        .where(
            (manifest.c.schedule_type == sql_literal(ScheduleType.CRON)) | follows_runs,
            manifest.c.id > after,
            manifest.c.enabled,
            group.c.enabled,
            manifest.c.retired_at.is_(None),
            func.coalesce(manifest.c.variance_seconds, 0) == 0,
        )
    )
    rows = connection.execute(query.order_by(manifest.c.id).limit(limit))
    return [_build_timed_manifest(row) for row in rows]


def _build_timed_manifest(row: Any) -> TimedManifest:
    was_queued = row.last_scheduled_for is not None or row.last_successful_run is not None
    timing = timing_of(row, timedelta())
    return TimedManifest(row.id, row.external_id, row.group_id, row.updated_at, timing, was_queued)


@cache
def _select_runs(dialect: str) -> Select[*tuple[Any, ...]]:
    t = tables_for(dialect)
    run, entry = t.metadata, t.work_queue
    own = ("id", "manifest_id", "group_id", "created_at", "started_at", "ended_at", "attempt", "exempt")
    failure = (run.c.failure_junction, run.c.failure_exception, run.c.failure_reason, run.c.stack_trace)
    has_failure = func.coalesce(*failure).is_not(None).label("has_failure")
    columns = [*(run.c[name] for name in (*own, "state", "submitter", "external_id")), has_failure]
    chunk = _chunk(run, *columns, run.c.entry_id)
    of_entry = (entry.c.id, entry.c.status, entry.c.metadata_id, entry.c.attempt)
    joined = chunk.outerjoin(entry, entry.c.id == chunk.c.entry_id)
    of_run = [chunk.c[name] for name in RunRow._fields[: len(columns)]]
    return select(*of_run, *of_entry).select_from(joined).order_by(chunk.c.id)


@cache
def _select_entries_of(dialect: str) -> Select[*tuple[Any, ...]]:
    of_manifests = tables_for(dialect).work_queue.c.manifest_id.between(bindparam("first"), bindparam("end"))
    return _select_entries(dialect, of_manifests)


@cache
def _select_entries(dialect: str, *conditions: Any) -> Select[*tuple[Any, ...]]:
    t = tables_for(dialect)
    entry, run, manifest, group = t.work_queue, t.metadata, t.manifest, t.manifest_group
    names = [name for name in EntryRow._fields[:12] if name != "unique_key"]
    key = func.coalesce(entry.c.unique_key, entry.c.former_key).label("unique_key")
    chunk = _chunk(entry, *(entry.c[name] for name in names), key, entry.c.external_id, where=conditions)
    joined = (
        chunk.outerjoin(run, run.c.id == chunk.c.metadata_id)
        .outerjoin(manifest, manifest.c.id == chunk.c.manifest_id)
        .outerjoin(group, group.c.id == chunk.c.group_id)
    )
    of_run = (
        run.c.id,
        run.c.external_id == chunk.c.external_id,
        *(run.c[name] for name in ("state", "attempt", "created_at", "ended_at")),
    )
    of_entry = [chunk.c[name] for name in EntryRow._fields[:12]]
    return select(*of_entry, *of_run, manifest.c.id, group.c.id).select_from(joined).order_by(chunk.c.id)


@cache
def _select_letters(dialect: str) -> Select[*tuple[Any, ...]]:
    t = tables_for(dialect)
    letter, entry, run, group = t.dead_letter, t.work_queue, t.metadata, t.manifest_group
    names = LetterRow._fields[:8]
    chunk = _chunk(letter, *(letter.c[name] for name in names), letter.c.last_metadata_id)
    has_entry = select(entry.c.id).where(entry.c.dead_letter_id == chunk.c.id).exists()
    joined = chunk.outerjoin(run, run.c.id == chunk.c.last_metadata_id).outerjoin(
        group, group.c.id == chunk.c.group_id
    )
    columns = [chunk.c[name] for name in names]
    return select(*columns, has_entry, run.c.id, group.c.id).select_from(joined).order_by(chunk.c.id)


def _chunk(table: Table, *columns: Any, where: Sequence[Any] = ()) -> Any:
    """The next rows of a table by id, as a subquery."""
    return (
        select(*columns)
        .where(table.c.id > bindparam("after"), table.c.id <= bindparam("last"), *where)
        .order_by(table.c.id)
        .limit(bindparam("most"))
        .subquery("chunk")
    )
