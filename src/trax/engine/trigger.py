"""Trigger manifests: queue an extra run, regardless of the schedule; activate dormant dependents."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from trax.engine.enqueue import clamp_priority
from trax.errors import Conflict, DefinitionError, NotFound, did_you_mean
from trax.records.states import Origin, ScheduleType
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store.manifests import manifest_rows
from trax.store.queue import work_queue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from trax.records import Manifest, WorkQueueEntry
    from trax.settings import Settings
    from trax.store import Connection

logger = logging.getLogger(__name__)
NEIGHBOURS: Final = 200
"""How many external ids on either side of an unknown one are compared with it."""
HOW_TO_RESTORE: Final = "to restore it, declare it in code again or schedule it under this id"


def trigger(
    connection: Connection, external_id: str, *, delay: timedelta | None, now: datetime
) -> WorkQueueEntry | None:
    """Queue an entry with the manifest's input; without a delay, an entry that could start now is reused."""
    rows = manifest_rows.load_for_trigger(connection, external_id=external_id, now=now)
    if not rows:
        raise manifest_not_found(connection, external_id)
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
    rows = manifest_rows.load_for_trigger(connection, group=group, now=now)
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


def get_manifest(connection: Connection, external_id: str) -> Manifest:
    """The manifest, live or retired; raises NotFound with the most similar external id."""
    manifest = manifest_rows.get(connection, external_id)
    if manifest is None:
        raise manifest_not_found(connection, external_id)
    return manifest


def manifest_not_found(connection: Connection, external_id: str) -> NotFound:
    """Only its neighbours in the order of the index are compared: there may be a million manifests."""
    before = manifest_rows.load_names(connection, before=external_id, limit=NEIGHBOURS)
    after = manifest_rows.load_names(connection, after=external_id, limit=NEIGHBOURS)
    return NotFound(f"there is no manifest {external_id!r}{did_you_mean(external_id, [*before, *after])}")


def manifest_retired_conflict(external_id: str, since: datetime) -> Conflict:
    return Conflict(
        f"manifest {external_id!r} has been retired since {since:%Y-%m-%d %H:%M:%S} UTC; {HOW_TO_RESTORE}"
    )


def activate(
    connection: Connection,
    parent: str,
    dependents: Sequence[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
    now: datetime,
) -> int:
    """Queue an entry for each (external id, input as JSON text); if one may not be activated here, none.

    Returns the number of entries. A manifest that is queued, active or has an open dead letter is skipped.
    """
    rows = manifest_rows.lock_targets(connection, [external_id for external_id, _ in dependents])
    for external_id, _ in dependents:
        _check(connection, external_id, rows.get(external_id), parent)
    entries = [
        _entry(rows[external_id], text, settings)
        for external_id, text in dict(dependents).items()
        if not _is_skipped(rows[external_id], force)
    ]
    return len(work_queue.add(connection, entries, now=now))


def _check(connection: Connection, external_id: str, row: Any, parent: str) -> None:
    if row is None:
        raise manifest_not_found(connection, external_id)
    if row.retired_at is not None:
        raise manifest_retired_conflict(external_id, row.retired_at)
    if row.schedule_type != ScheduleType.DORMANT_DEPENDENT:
        raise DefinitionError(f"manifest {external_id!r} is not dormant: its type is {row.schedule_type}")
    if row.parent != parent:
        raise DefinitionError(f"manifest {external_id!r} depends on {row.parent!r}, not on {parent!r}")


def _is_skipped(row: Any, force: bool) -> bool:  # noqa: FBT001
    reason = None
    if row.is_queued:
        reason = "it already has a queued entry"
    elif row.is_active:
        reason = "it has an active run"
    elif row.is_awaiting and not force:
        reason = "its dead letter awaits an operator"
    if reason:
        name = row.external_id
        logger.warning("manifest %r was not activated: %s", name, reason, extra={"manifest": name})
    return reason is not None


def _entry(row: Any, text: str, settings: Settings) -> NewEntry:
    return NewEntry(
        external_id=new_external_id(),
        train=row.train,
        origin=Origin.DORMANT,
        input=text,
        priority=clamp_priority(row.group_priority + settings.dependent_priority_boost),
        group_id=row.group_id,
        group_priority=row.group_priority,
        manifest_id=row.id,
        timeout_seconds=row.timeout_seconds,
    )
