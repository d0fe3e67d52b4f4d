"""What the manager reads and writes of manifests: who looks due, how they stand, when to look again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, case, func, literal_column, or_, select, text, update

from trax.records.retry_policy import RetryPolicy
from trax.records.standing import Parent, Standing
from trax.records.states import ScheduleType
from trax.store.dialect import document, id_document, ids_of, moment, rows_of
from trax.store.manifest_locks import locking
from trax.store.manifest_rows import OCCASION, RHYTHM, timing_from
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.schema.manifest import RESTING
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import STANDING_IN
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection, ScalarSelect, Select, Table, Update

    from trax.store.pipeline import Step

MOST_AT_ONCE: Final = 10_000
"""How many due manifests one cycle looks at; a greater flood is taken oldest first, cycle by cycle."""
PLAIN: Final = tuple(name for name in Standing._fields if name not in ("timing", "retry", "parent"))
"""What of a standing is read as it is: all between its timing and, at the end, `retry` and `parent`."""
RHYTHM_AT: Final = slice(len(PLAIN), len(PLAIN) + len(RHYTHM))
OCCASION_AT: Final = slice(RHYTHM_AT.stop, RHYTHM_AT.stop + len(OCCASION))


@cache
def waiting(dialect: str) -> Select[Any, Any]:
    """Asks who is to be looked at `now`: (id, group id), who waits longest first."""
    manifest = tables_for(dialect).manifest
    return (
        select(manifest.c.id, manifest.c.group_id)
        .where(manifest.c.next_due_at <= moment(dialect))
        .order_by(manifest.c.next_due_at, manifest.c.id)
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
    if not ids:
        return []
    dialect = connection.dialect.name
    looking: Step = (_looking(dialect), {"ids": id_document(ids)})
    *_, rows = run_together(connection, *before, looking)
    found = {row[0]: _standing(row, default_threshold) for row in rows}
    return [found[one] for one in ids if one in found]


def look_again(connection: Connection, moments: dict[int, datetime | None]) -> None:
    """Set when each of these is looked at next; None means: when something happens to it."""
    rows = [{"id": one, "next_due_at": moment} for one, moment in moments.items()]
    if rows:
        connection.execute(_look_again(connection.dialect.name), {"rows": document(rows)})


def suspects(connection: Connection) -> list[int]:
    """Manifests that no look is planned for, though nothing of what is under way would plan one.

    Some of them rest for good reasons that only their timing tells. Those with a planned look, which are
    most of those that run by time, are not read at all.
    """
    return list(connection.execute(_suspects(connection.dialect.name)).scalars())


def plan_looks(connection: Connection, ids: Sequence[int], *, now: datetime) -> list[str]:
    """Have those of these looked at now that no look is planned for; returns their external ids."""
    rows = connection.execute(_plan_looks(connection.dialect.name), {"ids": id_document(ids), "now": now})
    return sorted(rows.scalars())


@cache
def _suspects(dialect: str) -> Select[int]:
    t = tables_for(dialect)
    manifest, parent, group = t.manifest, t.manifest.alias("parent"), t.manifest_group
    kind, consumed = manifest.c.schedule_type, manifest.c.consumed_parent_success_at
    succeeded = (
        select(parent.c.last_successful_run).where(parent.c.id == manifest.c.depends_on_id).scalar_subquery()
    )
    is_open = select(group.c.enabled).where(group.c.id == manifest.c.group_id).scalar_subquery()
    by_time = or_(
        kind.in_((word(ScheduleType.CRON), word(ScheduleType.INTERVAL))),
        and_(kind == word(ScheduleType.ONCE), manifest.c.last_successful_run.is_(None)),
        and_(
            kind == word(ScheduleType.DEPENDENT),
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
            _count(t.work_queue, manifest, STANDING_IN) == 0,
            _count(t.metadata, manifest, ACTIVE) < manifest.c.max_instances,
        )
        .order_by(manifest.c.id)
    )


@cache
def _plan_looks(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = ids_of(dialect)
    return (
        update(manifest)
        .where(manifest.c.id == given.c.id, text(RESTING))
        .values(next_due_at=moment(dialect))
        .returning(manifest.c.external_id)
    )


@cache
def _looking(dialect: str) -> Select[Any]:
    """Asks for the values of `PLAIN`, `RHYTHM` and `OCCASION`, the retry policy, and what `_parent` takes."""
    t = tables_for(dialect)
    manifest, group, parent = t.manifest, t.manifest_group, t.manifest.alias("parent")
    given = ids_of(dialect)
    letters, entries, runs = t.dead_letter, t.work_queue, t.metadata
    is_active = (runs.c.manifest_id == manifest.c.id, text(ACTIVE))
    latest = select(func.coalesce(func.max(runs.c.attempt), 0)).where(*is_active).scalar_subquery()
    beside: dict[str, ColumnElement[Any]] = {
        "group_priority": group.c.priority,
        "group_enabled": group.c.enabled,
        # Counted, though one would do: PostgreSQL may answer EXISTS by hashing the whole table.
        "has_awaiting_dead_letter": _count(letters, manifest, "status = 'awaiting_intervention'") > 0,
        # What a person requeued is the very run that is missing: the schedule does not add another one.
        "has_queued_entry": _count(entries, manifest, STANDING_IN) > 0,
        "active_runs": _count(runs, manifest, ACTIVE),
        # Whether it is being tried again is asked only of what has failed.
        "latest_attempt": case((manifest.c.failure_count > 0, latest), else_=0),
        "is_retired": manifest.c.retired_at.is_not(None),
    }
    own = (*PLAIN, *RHYTHM, *OCCASION, "retry")
    of_parent = ("id", "schedule_type", "enabled", "last_successful_run", "retired_at")
    return (
        select(
            *(beside[name].label(name) if name in beside else manifest.c[name] for name in own),
            *(parent.c[name].label(f"parent_{name}") for name in of_parent),
        )
        .join(given, given.c.id == manifest.c.id)
        .join(group, group.c.id == manifest.c.group_id)
        .outerjoin(parent, parent.c.id == manifest.c.depends_on_id)
    )


def _count(table: Table, manifest: Table, condition: str) -> ScalarSelect[int]:
    is_its = table.c.manifest_id == manifest.c.id
    return select(func.count()).select_from(table).where(is_its, text(condition)).scalar_subquery()


def _standing(row: tuple[Any, ...], default_threshold: timedelta) -> Standing:
    timing = timing_from(row[RHYTHM_AT], row[OCCASION_AT], default_threshold)
    retry, *parent = row[OCCASION_AT.stop :]
    return Standing._make((timing, *row[: len(PLAIN)], RetryPolicy.from_json(retry), _parent(*parent)))


def _parent(
    parent_id: int | None,
    schedule_type: str,
    enabled: Any,
    last_successful_run: datetime | None,
    retired_at: datetime | None,
) -> Parent | None:
    if parent_id is None:
        return None
    is_done_for_good = schedule_type == ScheduleType.ONCE and last_successful_run is not None
    is_retired = retired_at is not None
    is_open = not is_retired and (enabled or is_done_for_good)
    return Parent(is_open=is_open, last_successful_run=last_successful_run, is_retired=is_retired)


@cache
def _look_again(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId, "next_due_at": Utc()})
    return update(manifest).where(manifest.c.id == given.c.id).values(next_due_at=given.c.next_due_at)
