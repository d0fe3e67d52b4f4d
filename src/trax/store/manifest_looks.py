"""Due manifests for the manager: which are due, their state, and when each is next due."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, case, func, literal_column, or_, select, text, update

from trax.records.retry_policy import RetryPolicy
from trax.records.standing import ManifestState, ParentState
from trax.records.states import ScheduleType
from trax.store.dialect import document, id_document, ids_of, now_parameter, rows_of
from trax.store.manifest_locks import lock_statements
from trax.store.manifest_rows import SCHEDULE_COLUMNS, TIMING_COLUMNS, timing_from
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import RESTING
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import BLOCKS_SCHEDULED
from trax.store.types import BigId, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, Table, Update

    from trax.store.pipeline import BoundStatement

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
    due = tables(connection).manifest.c.next_due_at
    # SQLite uses the partial index only if the query repeats its condition.
    return connection.execute(select(func.min(due)).where(due.is_not(None))).scalar()


def load_states(
    connection: Connection, ids: Sequence[int], *, default_threshold: timedelta
) -> list[ManifestState]:
    """Lock these manifests until the transaction ends, and load their states in this order."""
    return _load_states(connection, ids, default_threshold, *lock_statements(connection, ids))


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

    For some of them that is right, which only their timing shows. Manifests with a next due time, most of the
    scheduled ones, are not read.
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
    return ManifestState._make(
        (timing, *row[: len(STATE_COLUMNS)], RetryPolicy.from_json(retry), _parent(*parent))
    )


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
