"""Starting manifests by hand: an extra run, whatever the schedule says."""

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

BRING_BACK: Final = "to bring it back, declare it in code again or schedule it under this id"


def trigger(
    connection: Connection, external_id: str, *, delay: timedelta | None, now: datetime
) -> WorkQueueEntry | None:
    """Queue a run with the manifest's own input. One that could start at once is there already: take that."""
    rows = manifests.to_trigger(connection, external_id=external_id, now=now)
    if not rows:
        raise unknown(external_id)
    (row,) = rows
    if row.retired_at is not None:
        raise refusal_of_retired(external_id, row.retired_at)
    if delay is None and row.waiting_entry_id is not None:
        return work_queue.get(connection, row.waiting_entry_id)
    (entry_id,) = work_queue.add(connection, [entry_for(row, Origin.TRIGGER, delay=delay, now=now)], now=now)
    return work_queue.get(connection, entry_id)


def trigger_group(connection: Connection, group: str, *, now: datetime) -> int:
    """Queue a run of every enabled manifest of the group that depends on no other; returns how many."""
    rows = manifests.to_trigger(connection, group=group, now=now)
    entries = [entry_for(row, Origin.TRIGGER, now=now) for row in rows if row.waiting_entry_id is None]
    return len(work_queue.add(connection, entries, now=now))


def entry_for(
    row: Any,
    origin: Origin,
    *,
    now: datetime,
    delay: timedelta | None = None,
    dead_letter_id: int | None = None,
) -> NewEntry:
    """An entry made of a manifest's row, with its own priority."""
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


def unknown(external_id: str) -> NotFound:
    return NotFound(f"there is no manifest {external_id!r}")


def refusal_of_retired(external_id: str, since: datetime) -> Conflict:
    return Conflict(f"manifest {external_id!r} is retired since {since:%Y-%m-%d %H:%M:%S} UTC; {BRING_BACK}")
