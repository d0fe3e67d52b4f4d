"""What a person does with dead letters: requeue them, or say that they are dealt with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin.triggers import entry_for
from trax.records.external_id import new_external_id
from trax.records.states import DeadLetterStatus, Origin, ScheduleType
from trax.records.work_queue_entry import NewEntry
from trax.store import (
    dead_letters,
    manifest_endings,
    manifest_groups,
    manifests,
    unique_entries,
    work_queue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from trax.store import Connection
    from trax.store.dead_letters import Chosen


def requeue(connection: Connection, chosen: Chosen, *, note: str | None, now: datetime) -> list[int]:
    """Resolve those that still wait and queue each again; returns which were resolved.

    A manifest that has an entry in the queue which could start now needs no second one: its entry gets the
    letter. One that is put off, a retry or a delayed trigger, does not stand in for what a person wants now.
    A dormant one may be queued with another input, so what gave up is queued beside it.
    """
    status = DeadLetterStatus.RETRIED
    letters = dead_letters.resolve(connection, status, chosen, note=note or "requeued", now=now)
    of_manifests = {letter.manifest_id: letter for letter in letters if letter.manifest_id is not None}
    manifest_endings.forgive(connection, of_manifests)
    rows = manifests.rows_of_ids(connection, list(of_manifests))
    shared = {row.id: of_manifests[row.id].id for row in rows if not _is_dormant(row)}
    covered = work_queue.attach_dead_letters(connection, shared, now=now)
    entries = [_entry_for(row, of_manifests[row.id], now) for row in rows if row.id not in covered]
    alone = [letter for letter in letters if letter.manifest_id is None]
    priorities = manifest_groups.priorities(connection, (it.group_id for it in alone if it.group_id))
    entries += [_entry_of(letter, priorities.get(letter.group_id, 0)) for letter in alone]
    work_queue.add(connection, [entry for entry in entries if entry.unique_key is None], now=now)
    _add_keyed(connection, (entry for entry in entries if entry.unique_key is not None), now)
    manifests.look_at(connection, list(of_manifests), now=now)  # a trigger's entry may have taken the letter
    return sorted(letter.id for letter in letters)


def acknowledge(connection: Connection, chosen: Chosen, *, note: str, now: datetime) -> list[int]:
    """Resolve those that still wait; their manifests are scheduled again. Returns which were resolved.

    What was to run once has no other occurrence, so it is switched off: only a person starts it again.
    """
    status = DeadLetterStatus.ACKNOWLEDGED
    letters = dead_letters.resolve(connection, status, chosen, note=note, now=now)
    of_manifests = [letter.manifest_id for letter in letters if letter.manifest_id is not None]
    manifest_endings.forgive(connection, of_manifests)
    manifests.disable_once(connection, of_manifests, now=now)
    manifests.look_at(connection, of_manifests, now=now)
    return sorted(letter.id for letter in letters)


def _is_dormant(row: Any) -> bool:
    return row.schedule_type == ScheduleType.DORMANT_DEPENDENT


def _entry_for(row: Any, letter: Any, now: datetime) -> NewEntry:
    """With the manifest's input of today; a dormant one's was made by its parent, and the letter has it.

    A retired one runs once more as it did: with the letter's train and input.
    """
    entry = entry_for(row, Origin.REQUEUE, dead_letter_id=letter.id, now=now)
    if row.retired_at is not None:
        return entry._replace(train=letter.train, input=letter.input)
    return entry._replace(input=letter.input) if _is_dormant(row) else entry


def _add_keyed(connection: Connection, entries: Iterable[NewEntry], now: datetime) -> None:
    """As whoever asks for a key: while another job has it, that one answers for the letter, too.

    In the order of their keys, so that two who requeue at once do not wait for each other.
    """
    for entry in sorted(entries, key=lambda entry: (entry.unique_key, entry.train)):
        found = unique_entries.add_or_find(connection, entry, now=now)
        if found.external_id != entry.external_id and entry.dead_letter_id is not None:
            dead_letters.attach(connection, entry.dead_letter_id, found.id)


def _entry_of(letter: Any, group_priority: int) -> NewEntry:
    """What gave up without a manifest carries all it needs itself."""
    return NewEntry(
        external_id=new_external_id(),
        train=letter.train,
        origin=Origin.REQUEUE,
        input=letter.input,
        priority=letter.priority,
        group_id=letter.group_id,
        group_priority=group_priority,
        retry=letter.retry,
        timeout_seconds=letter.timeout_seconds,
        dead_letter_id=letter.id,
        unique_key=letter.unique_key,
    )
