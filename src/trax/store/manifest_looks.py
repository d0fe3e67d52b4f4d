"""What the manager reads and writes of manifests: who looks due, how they stand, when to look again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text, update

from trax.records.standing import Parent, Standing
from trax.records.states import ScheduleType
from trax.store.dialect import document, id_document, rows_of
from trax.store.manifest_rows import retry_of, timing_of
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import SCHEDULED
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row, Select, Update

MOST_AT_ONCE: Final = 10_000
"""How many due manifests one cycle looks at; a greater flood is taken oldest first, cycle by cycle."""


def waiting(connection: Connection, *, now: datetime) -> list[tuple[int, int, int]]:
    """The manifests to look at now: (id, group id, the group's priority), whoever waits longest first."""
    t = tables(connection)
    query = (
        select(t.manifest.c.id, t.manifest.c.group_id, t.manifest_group.c.priority)
        .join(t.manifest_group, t.manifest_group.c.id == t.manifest.c.group_id)
        .where(t.manifest.c.next_due_at <= now)
        .order_by(t.manifest.c.next_due_at, t.manifest.c.id)
        .limit(MOST_AT_ONCE)
    )
    return [tuple(row) for row in connection.execute(query)]


def next_look(connection: Connection) -> datetime | None:
    """When the earliest manifest wants to be looked at."""
    manifest = tables(connection).manifest
    return connection.execute(select(func.min(manifest.c.next_due_at))).scalar()


def standings(connection: Connection, ids: Sequence[int], *, default_threshold: timedelta) -> list[Standing]:
    """How these manifests stand, in the order asked for. Their rows stay locked until the cycle ends."""
    rows = connection.execute(_standings(connection.dialect.name), {"ids": id_document(ids)})
    found = {row.id: _standing(row, default_threshold) for row in rows}
    return [found[one] for one in ids if one in found]


def look_again(connection: Connection, moments: dict[int, datetime | None]) -> None:
    """Set when each of these is looked at next; None means: when something happens to it."""
    rows = [{"id": one, "next_due_at": moment} for one, moment in moments.items()]
    if rows:
        connection.execute(_look_again(connection.dialect.name), {"rows": document(rows)})


def note_queued(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Remember which occurrence, and which success of the parent, an entry was written for."""
    if rows:
        connection.execute(_note_queued(connection.dialect.name), {"rows": document(rows)})


@cache
def _standings(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    manifest, group, parent = t.manifest, t.manifest_group, t.manifest.alias("parent")
    given = rows_of(dialect, "ids", {"id": BigId})
    letters, entries, runs = t.dead_letter, t.work_queue, t.metadata
    is_awaiting = (
        select(letters.c.id)
        .where(letters.c.manifest_id == manifest.c.id, text("status = 'awaiting_intervention'"))
        .exists()
    )
    is_queued = select(entries.c.id).where(entries.c.manifest_id == manifest.c.id, text(SCHEDULED)).exists()
    active = (
        select(func.count())
        .select_from(runs)
        .where(runs.c.manifest_id == manifest.c.id, text(ACTIVE))
        .scalar_subquery()
    )
    return (
        select(
            manifest,
            group.c.priority.label("group_priority"),
            group.c.enabled.label("group_enabled"),
            parent.c.id.label("parent_id"),
            parent.c.enabled.label("parent_enabled"),
            parent.c.schedule_type.label("parent_type"),
            parent.c.last_successful_run.label("parent_success"),
            is_awaiting.label("is_awaiting"),
            is_queued.label("is_queued"),
            active.label("active"),
        )
        .join(given, given.c.id == manifest.c.id)
        .join(group, group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
        .with_for_update(of=manifest)
    )


def _standing(row: Row[Any], default_threshold: timedelta) -> Standing:
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
        retry=retry_of(row.retry),
        failure_count=row.failure_count,
        parent=_parent(row),
        consumed_parent_success_at=row.consumed_parent_success_at,
        has_awaiting_dead_letter=bool(row.is_awaiting),
        has_queued_entry=bool(row.is_queued),
        active_runs=row.active,
    )


def _parent(row: Row[Any]) -> Parent | None:
    if row.parent_id is None:
        return None
    is_done_for_good = row.parent_type == ScheduleType.ONCE and row.parent_success is not None
    return Parent(is_open=row.parent_enabled or is_done_for_good, last_successful_run=row.parent_success)


@cache
def _look_again(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId, "next_due_at": Utc()})
    return update(manifest).where(manifest.c.id == given.c.id).values(next_due_at=given.c.next_due_at)


@cache
def _note_queued(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    kinds = {"id": BigId, "last_scheduled_for": Utc(), "consumed_parent_success_at": Utc()}
    given = rows_of(dialect, "rows", kinds)
    return (
        update(manifest)
        .where(manifest.c.id == given.c.id)
        .values(
            next_due_at=None,
            last_scheduled_for=given.c.last_scheduled_for,
            consumed_parent_success_at=func.coalesce(
                given.c.consumed_parent_success_at, manifest.c.consumed_parent_success_at
            ),
        )
    )
