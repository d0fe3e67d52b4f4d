"""What the manager reads and writes of manifests: who looks due, how they stand, when to look again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import func, literal_column, select, text, update

from trax.records.retry_policy import RetryPolicy
from trax.records.standing import Parent, Standing
from trax.records.states import ScheduleType
from trax.store.dialect import document, id_document, moment, quick_document, rows_of
from trax.store.manifest_locks import locking
from trax.store.manifest_rows import timing_of
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import STANDING_IN
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, Table, Update
    from sqlalchemy.types import TypeEngine

    from trax.store.pipeline import Step

MOST_AT_ONCE: Final = 10_000
"""How many due manifests one cycle looks at; a greater flood is taken oldest first, cycle by cycle."""


class Looked(NamedTuple):
    """A manifest's row as the manager reads it, and beside it what else decides."""

    id: int
    external_id: str
    train: str
    input: str | None
    enabled: bool
    priority: int
    group_id: int
    timeout_seconds: float | None
    max_retries: int
    retry: str | None
    failure_count: int
    lifetime_failures: int
    gave_up_reason: str | None
    retry_at: datetime | None
    attempt_cancelled: bool
    consumed_parent_success_at: datetime | None
    schedule_type: str
    interval_seconds: int | None
    anchored: bool
    variance_seconds: int | None
    cron_expression: str | None
    scheduled_at: datetime | None
    exclusions: str | None
    time_zone: str
    misfire_policy: str
    misfire_threshold_seconds: float | None
    misfire_limit: int | None
    max_instances: int
    created_at: datetime
    last_successful_run: datetime | None
    last_scheduled_for: datetime | None
    next_scheduled_run: datetime | None
    group_priority: int
    group_enabled: bool
    parent_id: int | None
    parent_enabled: bool | None
    parent_type: str | None
    parent_success: datetime | None
    awaiting: int
    queued: int
    active: int
    latest_attempt: int


@cache
def waiting(dialect: str) -> Select[Any, Any, Any]:
    """Asks who is to be looked at `now`: (id, group id, the group's priority), who waits longest first."""
    t = tables_for(dialect)
    return (
        select(t.manifest.c.id, t.manifest.c.group_id, t.manifest_group.c.priority)
        .join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
        .where(t.manifest.c.next_due_at <= moment(dialect))
        .order_by(t.manifest.c.next_due_at, t.manifest.c.id)
        .limit(literal_column(str(MOST_AT_ONCE)))
    )


def next_look(connection: Connection) -> datetime | None:
    """When the earliest manifest wants to be looked at."""
    due = tables(connection).manifest.c.next_due_at
    # SQLite finds the index only when it is told what is in it.
    return connection.execute(select(func.min(due)).where(due.is_not(None))).scalar()


def standings(connection: Connection, ids: Sequence[int], *, default_threshold: timedelta) -> list[Standing]:
    """How these manifests stand, in the order asked for. Their rows stay locked until the cycle ends."""
    return _standings(connection, ids, default_threshold, *locking(connection, ids))


def glance(connection: Connection, ids: Sequence[int], *, default_threshold: timedelta) -> list[Standing]:
    """The same for those that only look, and hold nobody up."""
    return _standings(connection, ids, default_threshold)


def _standings(
    connection: Connection, ids: Sequence[int], default_threshold: timedelta, *before: Step
) -> list[Standing]:
    looking: Step = (_looking(connection.dialect.name), {"ids": id_document(ids)})
    *_, rows = run_together(connection, *before, looking)
    found = {row[0]: _standing(Looked(*row), default_threshold) for row in rows}
    return [found[one] for one in ids if one in found]


def look_again(connection: Connection, moments: dict[int, datetime | None]) -> None:
    """Set when each of these is looked at next; None means: when something happens to it."""
    rows = [{"id": one, "next_due_at": moment} for one, moment in moments.items()]
    if rows:
        connection.execute(_look_again(connection.dialect.name), {"rows": document(rows)})


def note_queued(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Remember what an entry was written for: which occurrence, and which success of the parent."""
    connection.execute(*noting_queued(connection.dialect.name, rows))


def noting_queued(dialect: str, rows: Sequence[dict[str, Any]]) -> Step:
    return _note_queued(dialect), {"rows": quick_document(dialect, rows)}


@cache
def _looking(dialect: str) -> Select[Any]:
    """Asks for `Looked` of each."""
    t = tables_for(dialect)
    manifest, group, parent = t.manifest, t.manifest_group, t.manifest.alias("parent")
    given = rows_of(dialect, "ids", {"id": BigId})
    letters, entries, runs = t.dead_letter, t.work_queue, t.metadata
    # Counted, though one would do: PostgreSQL may answer EXISTS by hashing the whole table.
    awaiting = _count(letters, letters.c.manifest_id == manifest.c.id, "status = 'awaiting_intervention'")
    # What a person requeued is the very run that is missing: the schedule does not add another one.
    queued = _count(entries, entries.c.manifest_id == manifest.c.id, STANDING_IN)
    active = _count(runs, runs.c.manifest_id == manifest.c.id, ACTIVE)
    is_active = (runs.c.manifest_id == manifest.c.id, text(ACTIVE))
    latest = select(func.coalesce(func.max(runs.c.attempt), 0)).where(*is_active).scalar_subquery()
    return (
        select(
            *(manifest.c[name] for name in Looked._fields if name in manifest.c),
            group.c.priority.label("group_priority"),
            group.c.enabled.label("group_enabled"),
            parent.c.id.label("parent_id"),
            parent.c.enabled.label("parent_enabled"),
            parent.c.schedule_type.label("parent_type"),
            parent.c.last_successful_run.label("parent_success"),
            awaiting.label("awaiting"),
            queued.label("queued"),
            active.label("active"),
            latest.label("latest_attempt"),
        )
        .join(given, given.c.id == manifest.c.id)
        .join(group, group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
    )


def _count(table: Table, is_its: ColumnElement[bool], condition: str) -> ScalarSelect[int]:
    return select(func.count()).select_from(table).where(is_its, text(condition)).scalar_subquery()


def _standing(row: Looked, default_threshold: timedelta) -> Standing:
    return Standing(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        input=row.input,
        enabled=row.enabled,
        priority=row.priority,
        group_id=row.group_id,
        group_priority=row.group_priority,
        group_enabled=row.group_enabled,
        timing=timing_of(row, default_threshold),
        timeout_seconds=row.timeout_seconds,
        max_retries=row.max_retries,
        retry=RetryPolicy.from_json(row.retry),
        failure_count=row.failure_count,
        lifetime_failures=row.lifetime_failures,
        gave_up_reason=row.gave_up_reason,
        retry_at=row.retry_at,
        attempt_cancelled=row.attempt_cancelled,
        parent=_parent(row),
        consumed_parent_success_at=row.consumed_parent_success_at,
        has_awaiting_dead_letter=row.awaiting > 0,
        has_queued_entry=row.queued > 0,
        active_runs=row.active,
        latest_attempt=row.latest_attempt,
    )


def _parent(row: Looked) -> Parent | None:
    if row.parent_id is None:
        return None
    is_done_for_good = row.parent_type == ScheduleType.ONCE and row.parent_success is not None
    return Parent(
        is_open=bool(row.parent_enabled) or is_done_for_good, last_successful_run=row.parent_success
    )


@cache
def _look_again(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId, "next_due_at": Utc()})
    return update(manifest).where(manifest.c.id == given.c.id).values(next_due_at=given.c.next_due_at)


@cache
def _note_queued(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    moments = ("next_due_at", "last_scheduled_for", "consumed_parent_success_at")
    kinds: dict[str, TypeEngine[Any]] = {"id": BigId, **{name: Utc() for name in moments}}
    given = rows_of(dialect, "rows", kinds)
    return (
        update(manifest)
        .where(manifest.c.id == given.c.id)
        .values(
            next_due_at=given.c.next_due_at,
            last_scheduled_for=given.c.last_scheduled_for,
            consumed_parent_success_at=func.coalesce(
                given.c.consumed_parent_success_at, manifest.c.consumed_parent_success_at
            ),
        )
    )
