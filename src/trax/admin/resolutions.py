"""What a person does with dead letters: requeue them, or say that they are dealt with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin.triggers import entry_for
from trax.records.external_id import new_external_id
from trax.records.states import DeadLetterStatus, Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import dead_letters, manifest_endings, manifest_groups, manifests, work_queue

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Connection
    from trax.store.dead_letters import Chosen


def requeue(connection: Connection, chosen: Chosen, *, note: str | None, now: datetime) -> list[int]:
    """Resolve those that still wait and queue each again; returns which were resolved.

    A manifest that has an entry in the queue already needs no second one: its entry gets the letter.
    """
    status = DeadLetterStatus.RETRIED
    letters = dead_letters.resolve(connection, status, chosen, note=note or "requeued", now=now)
    of_manifests = {letter.manifest_id: letter for letter in letters if letter.manifest_id is not None}
    manifest_endings.forgive(connection, of_manifests)
    covered = work_queue.attach_dead_letters(connection, {one: it.id for one, it in of_manifests.items()})
    rows = manifests.rows_of_ids(connection, [one for one in of_manifests if one not in covered])
    entries = [
        entry_for(row, Origin.REQUEUE, dead_letter_id=of_manifests[row.id].id, now=now) for row in rows
    ]
    alone = [letter for letter in letters if letter.manifest_id is None]
    priorities = manifest_groups.priorities(connection, (it.group_id for it in alone if it.group_id))
    entries += [_entry_of(letter, priorities.get(letter.group_id, 0)) for letter in alone]
    work_queue.add(connection, entries, now=now)
    manifests.look_at(connection, list(of_manifests), now=now)  # an entry that took the letter may be far off
    return sorted(letter.id for letter in letters)


def acknowledge(connection: Connection, chosen: Chosen, *, note: str, now: datetime) -> list[int]:
    """Resolve those that still wait; their manifests are scheduled again. Returns which were resolved."""
    status = DeadLetterStatus.ACKNOWLEDGED
    letters = dead_letters.resolve(connection, status, chosen, note=note, now=now)
    of_manifests = [letter.manifest_id for letter in letters if letter.manifest_id is not None]
    manifest_endings.forgive(connection, of_manifests)
    manifests.look_at(connection, of_manifests, now=now)
    return sorted(letter.id for letter in letters)


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
    )
