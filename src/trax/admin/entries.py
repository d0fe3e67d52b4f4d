"""Entries for manifests: many in one statement, and one by one when one of them is refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trax.events import Topic
from trax.records.external_id import new_external_id
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import manifest_looks, work_queue
from trax.store.announcing import announce
from trax.store.savepoint import Refused, savepoint, try_together

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.standing import Standing, ToQueue
    from trax.store import Connection

logger = logging.getLogger(__name__)


def create_entries(
    connection: Connection, wanted: Sequence[tuple[Standing, ToQueue]], *, now: datetime
) -> list[int]:
    """Write an entry for each, and remember on the manifest what it was for. Returns the entries' ids."""
    if not wanted:
        return []
    try:
        if len(wanted) <= work_queue.COPY_ABOVE:
            return _create_together(connection, wanted, now)
        with savepoint(connection):
            return _create(connection, wanted, now)
    except Refused:
        return [entry for one in wanted for entry in _create_alone(connection, one, now)]


def _create_alone(connection: Connection, one: tuple[Standing, ToQueue], now: datetime) -> list[int]:
    """One entry that cannot be written, a second one of its manifest say, must not keep out the others."""
    try:
        with savepoint(connection):
            return _create(connection, [one], now)
    except Refused as refused:
        name = one[0].external_id
        logger.warning("manifest %s: no entry could be written: %s", name, refused, extra={"manifest": name})
        manifest_looks.look_again(connection, {one[0].id: None})
        return []


def _create_together(
    connection: Connection, wanted: Sequence[tuple[Standing, ToQueue]], now: datetime
) -> list[int]:
    dialect, entries = connection.dialect.name, [_entry(*one) for one in wanted]
    adding = work_queue.adding(dialect, entries, now=now)
    noting = manifest_looks.noting_queued(dialect, _notes(wanted))
    ids = {external_id: entry_id for entry_id, external_id in try_together(connection, adding, noting)[0]}
    announce(connection, Topic.WORK_QUEUE)
    return [ids[entry.external_id] for entry in entries]


def _create(connection: Connection, wanted: Sequence[tuple[Standing, ToQueue]], now: datetime) -> list[int]:
    ids = work_queue.add(connection, [_entry(*one) for one in wanted], now=now)
    manifest_looks.note_queued(connection, _notes(wanted))
    return ids


def _notes(wanted: Sequence[tuple[Standing, ToQueue]]) -> list[dict[str, Any]]:
    return [_note(*one) for one in wanted]


def _note(standing: Standing, decision: ToQueue) -> dict[str, Any]:
    """What it does not mention is NULL."""
    note: dict[str, Any] = {"id": standing.id, "last_scheduled_for": decision.scheduled_for}
    if decision.look_again_at is not None:
        note["next_due_at"] = decision.look_again_at
    if decision.consumed_parent_success_at is not None:
        note["consumed_parent_success_at"] = decision.consumed_parent_success_at
    return note


def _entry(standing: Standing, decision: ToQueue) -> NewEntry:
    return NewEntry(
        external_id=new_external_id(),
        train=standing.train,
        origin=decision.origin,
        input=standing.input,
        priority=decision.priority,
        group_id=standing.group_id,
        group_priority=standing.group_priority,
        manifest_id=standing.id,
        attempt=standing.failure_count + 1 if decision.origin is Origin.RETRY else 1,
        timeout_seconds=standing.timeout_seconds,
        scheduled_at=decision.scheduled_at,
        scheduled_for=decision.scheduled_for,
    )
