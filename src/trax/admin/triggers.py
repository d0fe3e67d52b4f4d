"""Trigger manifests: queue an extra run, regardless of the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trax.errors import Conflict, NotFound
from trax.records.external_id import new_external_id
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import manifests, work_queue

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from trax.records import WorkQueueEntry
    from trax.store import Connection

HOW_TO_RESTORE: Final = "to restore it, declare it in code again or schedule it under this id"


def trigger(
    connection: Connection, external_id: str, *, delay: timedelta | None, now: datetime
) -> WorkQueueEntry | None:
    """Queue an entry with the manifest's input; without a delay, an entry that could start now is reused."""
    rows = manifests.load_for_trigger(connection, external_id=external_id, now=now)
    if not rows:
        raise manifest_not_found(external_id)
    (row,) = rows
    if row.retired_at is not None:
        raise manifest_retired_conflict(external_id, row.retired_at)
    if delay is None and row.waiting_entry_id is not None:
        return work_queue.get(connection, row.waiting_entry_id)
    (entry_id,) = work_queue.add(
        connection, [entry_from_row(row, Origin.TRIGGER, delay=delay, now=now)], now=now
    )
    return work_queue.get(connection, entry_id)


def trigger_group(connection: Connection, group: str, *, now: datetime) -> int:
    """Queue an entry for every enabled manifest of the group without a parent; returns how many."""
    rows = manifests.load_for_trigger(connection, group=group, now=now)
    entries = [entry_from_row(row, Origin.TRIGGER, now=now) for row in rows if row.waiting_entry_id is None]
    return len(work_queue.add(connection, entries, now=now))


def entry_from_row(
    row: Any,
    origin: Origin,
    *,
    now: datetime,
    delay: timedelta | None = None,
    dead_letter_id: int | None = None,
) -> NewEntry:
    """An entry from a manifest's row, with the manifest's priority."""
    return NewEntry(
        external_id=new_external_id(),
        train=row.train,
        origin=origin,
        input=row.input,
        priority=row.priority,
        group_id=row.group_id,
        group_priority=row.group_priority,
        manifest_id=row.id,
        dead_letter_id=dead_letter_id,
        timeout_seconds=row.timeout_seconds,
        scheduled_at=None if delay is None else now + delay,
    )


def manifest_not_found(external_id: str) -> NotFound:
    return NotFound(f"there is no manifest {external_id!r}")


def manifest_retired_conflict(external_id: str, since: datetime) -> Conflict:
    return Conflict(
        f"manifest {external_id!r} is retired since {since:%Y-%m-%d %H:%M:%S} UTC; {HOW_TO_RESTORE}"
    )
