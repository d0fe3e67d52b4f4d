"""What the manager reads and writes of manifests: who looks due, how they stand, when to look again."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import case, func, literal_column, select, text, update

from trax.records.retry_policy import RetryPolicy
from trax.records.standing import Parent, Standing
from trax.records.states import ScheduleType
from trax.store.dialect import document, id_document, ids_of, moment, rows_of
from trax.store.manifest_locks import locking
from trax.store.manifest_rows import OCCASION, RHYTHM, timing_from
from trax.store.pipeline import run_together
from trax.store.schema import tables, tables_for
from trax.store.schema.metadata import ACTIVE
from trax.store.schema.work_queue import STANDING_IN
from trax.store.types import BigId, Utc

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
    }
    own = (*PLAIN, *RHYTHM, *OCCASION, "retry")
    of_parent = ("id", "schedule_type", "enabled", "last_successful_run")
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
    parent_id: int | None, schedule_type: str, enabled: Any, last_successful_run: datetime | None
) -> Parent | None:
    if parent_id is None:
        return None
    is_done_for_good = schedule_type == ScheduleType.ONCE and last_successful_run is not None
    return Parent(is_open=enabled or is_done_for_good, last_successful_run=last_successful_run)


@cache
def _look_again(dialect: str) -> Update:
    manifest = tables_for(dialect).manifest
    given = rows_of(dialect, "rows", {"id": BigId, "next_due_at": Utc()})
    return update(manifest).where(manifest.c.id == given.c.id).values(next_due_at=given.c.next_due_at)
