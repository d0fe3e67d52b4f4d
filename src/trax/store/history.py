"""Read the whole history in chunks, along the ids, for `trax verify`. Each read is one short transaction."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import Text, bindparam, case, cast, func, or_, select, text, true

from trax.masking import SECRET_KEY
from trax.records.states import QueueStatus, ScheduleType
from trax.store.dialect import among, id_document, is_sqlite, last_id
from trax.store.manifests.manifest_due import timing_of
from trax.store.schema import tables, tables_for
from trax.store.types import sql_literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table

    from trax.records.schedule import Timing

P = ParamSpec("P")
T = TypeVar("T")

SEALED_INPUT: Final = "sealed input"
"""The difference of inputs that hold secrets: these may have been encrypted again, one after the other."""


class HistoryEnd(NamedTuple):
    """The highest id of each table at the start of the verification: rows written later are not read."""

    now: datetime
    run_id: int
    entry_id: int
    letter_id: int
    line_id: int


class RunRow(NamedTuple):
    """A run, what its entry has, and the first of the columns in which they differ though they must not."""

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
    train: str
    worker_id: int | None
    cancel_requested: bool
    failure_junction: str | None
    failure_exception: str | None
    own_entry_id: int | None
    parent_id: int | None
    has_failure: bool
    entry_id: int | None
    entry_status: str | None
    entry_run_id: int | None
    entry_attempt: int | None
    entry_created_at: datetime | None
    entry_scheduled_at: datetime | None
    entry_priority: int | None
    entry_dispatch_attempts: int | None
    origin: str | None
    difference: str | None
    has_parent: bool


class EntryRow(NamedTuple):
    """An entry, and the run it points to, if there is one; `unique_key` also after it was released.

    The policies are those of entries that were retried: `retry` of its own, else of its manifest.
    """

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
    scheduled_at: datetime | None
    ready: bool
    parked: str | None
    dead_letter_id: int | None
    dispatch_attempts: int
    retry: str | None
    run_id: int | None
    is_own_run: bool | None
    run_state: str | None
    run_attempt: int | None
    run_created_at: datetime | None
    run_ended_at: datetime | None
    manifest_row: int | None
    max_retries: int | None
    manifest_changed_at: datetime | None
    group_row: int | None
    group_priority: int | None
    expected_priority: int | None
    """The priority of its group, if it has settled and the entry is queued."""
    letter_row: int | None


class LetterRow(NamedTuple):
    """A dead letter, its last run, whether that run was retried, and what came from the letter."""

    id: int
    manifest_id: int | None
    group_id: int | None
    status: str
    unique_key: str | None
    dead_lettered_at: datetime
    resolved_at: datetime | None
    retry_metadata_id: int | None
    train: str
    last_metadata_id: int | None
    has_entry: bool
    last_run_id: int | None
    last_run_state: str | None
    last_run_train: str | None
    later_run_id: int | None
    is_queued_again: bool
    group_row: int | None
    retry_row: int | None


class ActiveSpan(NamedTuple):
    """A run that was admitted before a moment and had not ended then."""

    id: int
    group_id: int | None
    created_at: datetime
    ended_at: datetime | None
    submitter: str | None
    exempt: bool
    manifest_id: int | None
    origin: str | None


class InstanceLimit(NamedTuple):
    """How many runs of its schedule a manifest may have, since its last change."""

    id: int
    external_id: str
    max_instances: int
    changed_at: datetime


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
    """The runs with these ids that had not ended at that moment."""
    t = tables(connection)
    run, entry = t.metadata, t.work_queue
    is_open = or_(run.c.ended_at.is_(None), run.c.ended_at > moment)
    columns = [run.c[name] for name in ActiveSpan._fields[:-1]]
    query = select(*columns, entry.c.origin).outerjoin(entry, entry.c.id == run.c.entry_id)
    query = query.where(run.c.id > after, run.c.id <= up_to, is_open)
    return [ActiveSpan._make(row) for row in connection.execute(query.order_by(run.c.id))]


def load_instance_limits(connection: Connection, manifest_ids: Iterable[int]) -> dict[int, InstanceLimit]:
    manifest = tables(connection).manifest
    columns = (manifest.c.id, manifest.c.external_id, manifest.c.max_instances, manifest.c.updated_at)
    query = select(*columns).where(among(connection, manifest.c.id))
    rows = connection.execute(query, {"ids": id_document(manifest_ids)})
    return {row.id: InstanceLimit._make(row) for row in rows}


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


def are_letters_complete(connection: Connection) -> bool:
    """Whether no dead letter was deleted: no id is missing."""
    letter = tables(connection).dead_letter
    return connection.execute(select(func.count(letter.c.id))).scalar_one() == last_id(connection, letter)


def find_dead_lettered(connection: Connection, run_ids: Sequence[int]) -> set[int]:
    """Which of these runs are the last one of a dead letter."""
    letter = tables(connection).dead_letter
    query = select(letter.c.last_metadata_id).where(among(connection, letter.c.last_metadata_id))
    return set(connection.execute(query, {"ids": id_document(run_ids)}).scalars())


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
    own = [run.c[name] for name in RunRow._fields if name in run.c and name != "entry_id"]
    failure = (run.c.failure_junction, run.c.failure_exception, run.c.failure_reason, run.c.stack_trace)
    has_failure = func.coalesce(*failure).is_not(None).label("has_failure")
    compared = (run.c.priority, run.c.input)
    chunk = _chunk(run, *own, run.c.entry_id.label("own_entry_id"), has_failure, *compared)
    of_entry = ("id", "status", "metadata_id", "attempt", "created_at", "scheduled_at", "priority")
    joined = chunk.outerjoin(entry, entry.c.id == chunk.c.own_entry_id)
    of_run = [chunk.c[name] for name in RunRow._fields[: RunRow._fields.index("entry_id")]]
    return (
        select(
            *of_run,
            *(entry.c[name].label(f"entry_{name}") for name in of_entry),
            entry.c.dispatch_attempts,
            entry.c.origin,
            _difference(chunk, entry),
            case((chunk.c.parent_id.is_not(None), _one(run, chunk.c.parent_id).is_not(None)), else_=true()),
        )
        .select_from(joined)
        .order_by(chunk.c.id)
    )


def _difference(run: Any, entry: Table) -> ColumnElement[Any]:
    """The first column in which a run differs from its entry.

    The record of a run may have no input, or only a note that it was too long. Secrets of inputs may have
    been encrypted again in one table and not yet in the other.
    """
    kept, queued = cast(run.c.input, Text), cast(entry.c.input, Text)
    differs = run.c.input.is_not(None) & kept.is_distinct_from(queued)
    is_other_input = differs & kept.not_like('{"_truncated": true%')
    holds_secret = kept.like(f'%"{SECRET_KEY}"%')
    return case(
        (entry.c.id.is_(None), None),
        *(
            (run.c[name].is_distinct_from(entry.c[name]), name)
            for name in ("train", "manifest_id", "group_id", "priority", "external_id")
        ),
        (is_other_input & holds_secret, SEALED_INPUT),
        (is_other_input, "input"),
        else_=None,
    ).label("difference")


def _one(table: Table, row_id: Any) -> ColumnElement[Any]:
    """The id of a row, if it exists. A scalar: for EXISTS, PostgreSQL may read the whole table."""
    other = table.alias()
    return select(other.c.id).where(other.c.id == row_id).scalar_subquery()


@cache
def _select_entries_of(dialect: str) -> Select[*tuple[Any, ...]]:
    of_manifests = tables_for(dialect).work_queue.c.manifest_id.between(bindparam("first"), bindparam("end"))
    return _select_entries(dialect, of_manifests)


@cache
def _select_entries(dialect: str, *conditions: Any) -> Select[*tuple[Any, ...]]:
    t = tables_for(dialect)
    entry, run, manifest, group = t.work_queue, t.metadata, t.manifest, t.manifest_group
    names = EntryRow._fields[: EntryRow._fields.index("retry")]
    key = func.coalesce(entry.c.unique_key, entry.c.former_key).label("unique_key")
    retry = case((entry.c.attempt > 1, entry.c.retry)).label("retry")
    own = (entry.c[name] for name in (*names, "external_id", "group_priority") if name != "unique_key")
    chunk = _chunk(entry, *own, key, retry, where=conditions)
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
    has_settled = (chunk.c.status == sql_literal(QueueStatus.QUEUED)) & group.c.apply_priority_at.is_(None)
    letter = case((chunk.c.dead_letter_id.is_not(None), _one(t.dead_letter, chunk.c.dead_letter_id)))
    return (
        select(
            *(chunk.c[name] for name in (*names, "retry")),
            *of_run,
            *(manifest.c[name] for name in ("id", "max_retries", "updated_at")),
            group.c.id,
            chunk.c.group_priority,
            case((has_settled, func.coalesce(group.c.priority, 0))),
            letter.label("letter_row"),
        )
        .select_from(joined)
        .order_by(chunk.c.id)
    )


@cache
def _select_letters(dialect: str) -> Select[*tuple[Any, ...]]:
    t = tables_for(dialect)
    letter, entry, run, group = t.dead_letter, t.work_queue, t.metadata, t.manifest_group
    names = LetterRow._fields[: LetterRow._fields.index("has_entry")]
    chunk = _chunk(letter, *(letter.c[name] for name in names))
    has_entry = select(entry.c.id).where(entry.c.dead_letter_id == chunk.c.id).exists()
    own = entry.alias("own")
    joined = (
        chunk.outerjoin(run, run.c.id == chunk.c.last_metadata_id)
        .outerjoin(own, own.c.id == run.c.entry_id)
        .outerjoin(group, group.c.id == chunk.c.group_id)
    )
    return (
        select(
            *(chunk.c[name] for name in names),
            has_entry,
            *(run.c[name] for name in ("id", "state", "train")),
            case((own.c.metadata_id != run.c.id, own.c.metadata_id)),
            func.coalesce(own.c.status == sql_literal(QueueStatus.QUEUED), False),
            group.c.id,
            case((chunk.c.retry_metadata_id.is_not(None), _one(run, chunk.c.retry_metadata_id))),
        )
        .select_from(joined)
        .order_by(chunk.c.id)
    )


def _chunk(table: Table, *columns: Any, where: Sequence[Any] = ()) -> Any:
    """The next rows of a table by id, as a subquery."""
    return (
        select(*columns)
        .where(table.c.id > bindparam("after"), table.c.id <= bindparam("last"), *where)
        .order_by(table.c.id)
        .limit(bindparam("most"))
        .subquery("chunk")
    )
