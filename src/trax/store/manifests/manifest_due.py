"""Due manifests: select and lock them, load their states and timings, set when they are due next."""

from __future__ import annotations

from functools import cache, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, case, func, literal_column, or_, select, text, update

from trax.bounds import duration_within_bounds
from trax.errors import format_value
from trax.records.manifest import ManifestState, ParentState, RetryPolicy
from trax.records.schedule import Cron, Interval, Misfire, Timing, exclusions_from_json
from trax.records.states import MisfirePolicy, ScheduleType
from trax.store.dialect import (
    document,
    id_document,
    ids_of,
    leader_lock,
    now_parameter,
    rows_of,
    time_before_now_parameter,
)
from trax.store.manifests.manifest_rows import lock_in_order
from trax.store.pipeline import run_together
from trax.store.runs.rescue import MaintenanceNeeds, select_maintenance_needs
from trax.store.schema import tables_for
from trax.store.schema.manifest import RESTING
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import BLOCKS_SCHEDULED
from trax.store.settings import select_edited
from trax.store.types import SQLITE, BigId, Utc, in_utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, Table, Update

    from trax.records.schedule import Exclusion, Schedule
    from trax.settings import Settings
    from trax.store.pipeline import BoundStatement


SCHEDULE_COLUMNS: Final = (
    "schedule_type",
    "interval_seconds",
    "anchored",
    "variance_seconds",
    "cron_expression",
    "time_zone",
    "exclusions",
    "misfire_policy",
    "misfire_threshold_seconds",
    "misfire_limit",
)
"""The columns of the schedule; many manifests have the same values."""

TIMING_COLUMNS: Final = (
    "created_at",
    "scheduled_at",
    "max_instances",
    "last_successful_run",
    "last_scheduled_for",
    "next_scheduled_run",
    "plan_after",
)
"""The columns of a timing that differ between manifests."""

_schedule_values, _timing_values = attrgetter(*SCHEDULE_COLUMNS), attrgetter(*TIMING_COLUMNS)


MAX_DUE: Final = 10_000
"""How many due manifests one cycle reads; more are handled oldest first in the next cycles."""

STATE_COLUMNS: Final = tuple(
    name for name in ManifestState._fields if name not in ("timing", "retry", "parent")
)
"""The fields of a manifest's state that are columns as they are; `timing`, `retry` and `parent` are built."""

SCHEDULE_SLICE: Final = slice(len(STATE_COLUMNS), len(STATE_COLUMNS) + len(SCHEDULE_COLUMNS))

TIMING_SLICE: Final = slice(SCHEDULE_SLICE.stop, SCHEDULE_SLICE.stop + len(TIMING_COLUMNS))


@cache
def select_due(dialect: str) -> Select[Any, Any]:
    """Select the due manifests as (id, group id), the longest due first."""
    manifest = tables_for(dialect).manifest
    return (
        select(manifest.c.id, manifest.c.group_id)
        .where(manifest.c.next_due_at <= now_parameter(dialect))
        .order_by(manifest.c.next_due_at, manifest.c.id)
        .limit(literal_column(str(MAX_DUE)))
    )


def load_next_due(connection: Connection) -> datetime | None:
    """When the next manifest is due."""
    [[(next_due,)]] = run_together(connection, (_select_next_due(connection.dialect.name), {}))
    return None if next_due is None else in_utc(next_due)


@cache
def _select_next_due(dialect: str) -> Select[Any]:
    due = tables_for(dialect).manifest.c.next_due_at
    # SQLite uses the partial index only if the query repeats its condition.
    return select(func.min(due)).where(due.is_not(None))


def load_states(
    connection: Connection, ids: Sequence[int], *, default_threshold: timedelta
) -> list[ManifestState]:
    """Lock these manifests until the transaction ends, and load their states in this order."""
    dialect = connection.dialect.name
    locks: list[BoundStatement] = (
        [] if dialect == SQLITE else [(lock_in_order(dialect), {"ids": id_document(ids)})]
    )
    return _load_states(connection, ids, default_threshold, *locks)


def load_states_unlocked(
    connection: Connection, ids: Sequence[int], *, default_threshold: timedelta
) -> list[ManifestState]:
    """Load the states of these manifests without locks, for readers."""
    return _load_states(connection, ids, default_threshold)


def _load_states(
    connection: Connection, ids: Sequence[int], default_threshold: timedelta, *before: BoundStatement
) -> list[ManifestState]:
    if not ids:
        return []
    dialect = connection.dialect.name
    query: BoundStatement = (_select_states(dialect), {"ids": id_document(ids)})
    *_, rows = run_together(connection, *before, query)
    states = {row[0]: _build_state(row, default_threshold) for row in rows}
    return [states[manifest_id] for manifest_id in ids if manifest_id in states]


def set_next_due(connection: Connection, moments: dict[int, datetime | None]) -> None:
    """Set when each manifest is next due; None means when one of its runs or its parent changes it."""
    rows = [{"id": manifest_id, "next_due_at": due_at} for manifest_id, due_at in moments.items()]
    if rows:
        connection.execute(_set_next_due(connection.dialect.name), {"rows": document(rows)})


def find_without_next_due(connection: Connection) -> list[int]:
    """Manifests without a next due time, and without an active run, entry or dead letter that would set one.

    For some of them that is correct; their timing shows for which. Manifests with a next due time, most of
    the scheduled ones, are not read.
    """
    return list(connection.execute(_select_without_next_due(connection.dialect.name)).scalars())


def mark_due(connection: Connection, ids: Sequence[int], *, now: datetime) -> list[str]:
    """Make those of these manifests due now that have no next due time; returns their external ids."""
    rows = connection.execute(_mark_due(connection.dialect.name), {"ids": id_document(ids), "now": now})
    return sorted(rows.scalars())


@cache
def _select_without_next_due(dialect: str) -> Select[int]:
    t = tables_for(dialect)
    manifest, parent, group = t.manifest, t.manifest.alias("parent"), t.manifest_group
    kind, consumed = manifest.c.schedule_type, manifest.c.consumed_parent_success_at
    succeeded = (
        select(parent.c.last_successful_run).where(parent.c.id == manifest.c.depends_on_id).scalar_subquery()
    )
    is_open = select(group.c.enabled).where(group.c.id == manifest.c.group_id).scalar_subquery()
    by_time = or_(
        kind.in_((sql_literal(ScheduleType.CRON), sql_literal(ScheduleType.INTERVAL))),
        and_(kind == sql_literal(ScheduleType.ONCE), manifest.c.last_successful_run.is_(None)),
        and_(
            kind == sql_literal(ScheduleType.DEPENDENT),
            succeeded.is_not(None),
            or_(consumed.is_(None), succeeded > consumed),
        ),
    )
    has_failed = or_(manifest.c.failure_count > 0, manifest.c.gave_up_reason.is_not(None))
    return (
        select(manifest.c.id)
        .where(
            text(RESTING),
            or_(and_(by_time, is_open), has_failed),
            _count(t.dead_letter, manifest, "status = 'awaiting_intervention'") == 0,
            _count(t.work_queue, manifest, BLOCKS_SCHEDULED) == 0,
            _count(t.metadata, manifest, ACTIVE) < manifest.c.max_instances,
        )
        .order_by(manifest.c.id)
    )


@cache
def _mark_due(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    wanted = ids_of(dialect)
    return (
        update(manifest)
        .where(manifest.c.id == wanted.c.id, text(RESTING))
        .values(next_due_at=now_parameter(dialect))
        .returning(manifest.c.external_id)
    )


@cache
def _select_states(dialect: str) -> Select[Any]:
    """Select the state, schedule and timing columns, the retry policy, and the arguments of `_parent`."""
    t = tables_for(dialect)
    manifest, group, parent = t.manifest, t.manifest_group, t.manifest.alias("parent")
    wanted = ids_of(dialect)
    letters, entries, runs = t.dead_letter, t.work_queue, t.metadata
    is_active = (runs.c.manifest_id == manifest.c.id, text(ACTIVE))
    latest = select(func.coalesce(func.max(runs.c.attempt), 0)).where(*is_active).scalar_subquery()
    computed: dict[str, ColumnElement[Any]] = {
        "group_priority": group.c.priority,
        "group_enabled": group.c.enabled,
        # A count, not EXISTS: PostgreSQL may hash the whole table for EXISTS.
        "has_awaiting_dead_letter": _count(letters, manifest, "status = 'awaiting_intervention'") > 0,
        # A requeued entry counts as the scheduled one: the schedule does not add another.
        "has_queued_entry": _count(entries, manifest, BLOCKS_SCHEDULED) > 0,
        "active_runs": _count(runs, manifest, ACTIVE),
        # Only a manifest with failures can have a retry in progress.
        "latest_attempt": case((manifest.c.failure_count > 0, latest), else_=0),
        "is_retired": manifest.c.retired_at.is_not(None),
    }
    own = (*STATE_COLUMNS, *SCHEDULE_COLUMNS, *TIMING_COLUMNS, "retry")
    of_parent = ("id", "schedule_type", "enabled", "last_successful_run", "retired_at")
    return (
        select(
            *(computed[name].label(name) if name in computed else manifest.c[name] for name in own),
            *(parent.c[name].label(f"parent_{name}") for name in of_parent),
        )
        .join(wanted, wanted.c.id == manifest.c.id)
        .join(group, group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
    )


def _count(table: Table, manifest: Table, condition: str) -> ScalarSelect[int]:
    of_manifest = table.c.manifest_id == manifest.c.id
    return select(func.count()).select_from(table).where(of_manifest, text(condition)).scalar_subquery()


def _build_state(row: tuple[Any, ...], default_threshold: timedelta) -> ManifestState:
    timing = timing_from(row[SCHEDULE_SLICE], row[TIMING_SLICE], default_threshold)
    retry, *parent = row[TIMING_SLICE.stop :]
    policy = None if retry is None else RetryPolicy.from_json(retry)
    return ManifestState._make((timing, *row[: len(STATE_COLUMNS)], policy, _parent(*parent)))


def _parent(
    parent_id: int | None,
    schedule_type: str,
    enabled: Any,
    last_successful_run: datetime | None,
    retired_at: datetime | None,
) -> ParentState | None:
    if parent_id is None:
        return None
    is_done_for_good = schedule_type == ScheduleType.ONCE and last_successful_run is not None
    is_retired = retired_at is not None
    is_open = not is_retired and (enabled or is_done_for_good)
    return ParentState(is_open=is_open, last_successful_run=last_successful_run, is_retired=is_retired)


@cache
def _set_next_due(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    rows = rows_of(dialect, "rows", {"id": BigId, "next_due_at": Utc()})
    return update(manifest).where(manifest.c.id == rows.c.id).values(next_due_at=rows.c.next_due_at)


NO_MAINTENANCE: Final = MaintenanceNeeds(
    timed_out=False, stale_pending=False, lost_workers=False, stale_priorities=False, unstartable=False
)


class CycleStart(NamedTuple):
    """What a manager cycle starts with. `is_leader` is true for one server at a time; others do not wait.

    With the manifest manager disabled, due manifests are not read.
    """

    is_leader: bool
    now: datetime
    settings: dict[str, str]
    due: list[tuple[Any, ...]]
    maintenance: MaintenanceNeeds


def start_cycle(connection: Connection, settings: Settings, *, now: datetime | None) -> CycleStart:
    """Read the start of a cycle by the settings known so far; edited ones take effect in the next cycle."""
    dialect = connection.dialect.name
    is_enabled = settings.manifest_manager_enabled
    first = (
        (_leader_and_maintenance(dialect), maintenance_parameters(dialect, settings, now))
        if is_enabled
        else (leader_lock(dialect), {"now": now})
    )
    due = [(select_due(dialect), {"now": now})] if is_enabled else []
    [(is_leader, moment, *maintenance)], rows, *due_rows = run_together(
        connection, first, (select_edited(dialect), {}), *due
    )
    due_manifests = due_rows[0] if is_enabled else []
    return CycleStart(
        is_leader,
        in_utc(moment),
        dict(rows),
        due_manifests,
        MaintenanceNeeds(*maintenance) if is_enabled else NO_MAINTENANCE,
    )


@cache
def _leader_and_maintenance(dialect: str) -> Select[Any]:
    """Leader lock and maintenance check in one statement. It may be out of date: each fix checks again."""
    return leader_lock(dialect).add_columns(*select_maintenance_needs(dialect).selected_columns)


def maintenance_parameters(dialect: str, settings: Settings, now: datetime | None) -> dict[str, Any]:
    """The parameters of the maintenance check."""
    unknown_after = settings.unknown_train_timeout or settings.stale_pending_timeout
    return {
        "now": now,
        "default_seconds": settings.default_job_timeout.total_seconds(),
        "stale_after": time_before_now_parameter(dialect, now, settings.stale_pending_timeout),
        "lost_after": time_before_now_parameter(dialect, now, settings.worker_lost_after),
        "unknown_after": time_before_now_parameter(dialect, now, unknown_after),
    }


class ParsedSchedule(NamedTuple):
    """The parsed values of `SCHEDULE_COLUMNS`."""

    schedule_type: ScheduleType
    schedule: Schedule | None
    exclusions: tuple[Exclusion, ...]
    time_zone: str
    misfire: Misfire
    broken: str | None


def timing_of(row: Any, default_threshold: timedelta) -> Timing:
    """Build the timing of a row that has all these columns."""
    return timing_from(_schedule_values(row), _timing_values(row), default_threshold)


def timing_from(
    schedule_values: tuple[Any, ...], timing_values: tuple[Any, ...], default_threshold: timedelta
) -> Timing:
    """Build a timing from the values of `SCHEDULE_COLUMNS` and `TIMING_COLUMNS`, in their order."""
    kind, schedule, exclusions, time_zone, misfire, broken = _parse_schedule(
        default_threshold, *schedule_values
    )
    created_at, scheduled_at, max_instances, succeeded_at, queued_for, planned, plan_after = timing_values
    return Timing(
        kind,
        created_at,
        schedule,
        scheduled_at,
        exclusions,
        time_zone,
        misfire,
        max_instances,
        succeeded_at,
        queued_for,
        planned,
        broken,
        plan_after,
    )


@lru_cache(maxsize=4096)
def _parse_schedule(default_threshold: timedelta, *values: Any) -> ParsedSchedule:
    """Parse the schedule columns; cached, since many manifests share them and each cycle reads them again."""
    column: dict[str, Any] = dict(zip(SCHEDULE_COLUMNS, values, strict=True))
    own = column["misfire_threshold_seconds"]
    threshold = default_threshold if own is None else duration_within_bounds(own)
    exclusions, broken = _exclusions(column["exclusions"])
    return ParsedSchedule(
        schedule_type=ScheduleType(column["schedule_type"]),
        schedule=_schedule(column),
        exclusions=exclusions,
        time_zone=column["time_zone"],
        misfire=Misfire(MisfirePolicy(column["misfire_policy"]), threshold, column["misfire_limit"]),
        broken=broken,
    )


def _schedule(column: dict[str, Any]) -> Schedule | None:
    variance = column["variance_seconds"]
    match column["schedule_type"]:
        case ScheduleType.INTERVAL:
            return Interval(
                column["interval_seconds"], anchored=column["anchored"], variance_seconds=variance
            )
        case ScheduleType.CRON:
            return Cron(column["cron_expression"], column["time_zone"], variance)
        case _:
            return None


def _exclusions(text: str | None) -> tuple[tuple[Exclusion, ...], str | None]:
    """The exclusions, or an error: a newer server may have written a kind that is unknown here."""
    try:
        return exclusions_from_json(text), None
    except ValueError:
        return (), f"its exclusions cannot be read: {format_value(text)}"
