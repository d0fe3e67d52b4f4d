"""Wishes to run. Everything that wants to run is written to the work queue here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from trax.bounds import PRIORITY_MAX
from trax.records.states import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, WorkQueueEntry
from trax.store import manifest_groups, quick_add, unique_entries, work_queue
from trax.store.json import parsed

if TYPE_CHECKING:
    from trax.records import ManifestGroup
    from trax.store import Connection

EntryT = TypeVar("EntryT", bound=WorkQueueEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller asks for, with its inputs as JSON text that has been checked already.

    `inputs` are by the external id that each entry, and the runs it leads to, will have. With a `unique` key
    there is one input, and nothing is written while the job of an earlier entry with that key is not over.
    `repeats` is the run that it asks for once more.
    """

    train: str
    inputs: Mapping[str, str]
    origin: Origin = Origin.QUEUE
    priority: int = 0
    group: str | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    unique: str | None = None
    timeout_seconds: float | None = None
    retry: str | None = None
    repeats: int | None = None


def enqueue(
    connection: Connection,
    wish: Wish,
    *,
    now: datetime,
    record: type[EntryT],
    group: ManifestGroup | None = None,
) -> list[EntryT]:
    """Write one entry for each input, in one go; what is returned are records of that kind.

    `group` is the wish's, where it was made only just before: this transaction may not see it yet.
    """
    if group is not None:
        manifest_groups.keep(connection, group)
    elif wish.group is not None:
        group = manifest_groups.named(connection, [wish.group], now=now)[wish.group]
    entries = [_entry(wish, external_id, text, group, now) for external_id, text in wish.inputs.items()]
    if wish.unique is not None:
        return [_only_one(connection, entry, record, now) for entry in entries]
    ids = work_queue.add(connection, entries, now=now)
    return [
        record(**_fields(entry_id, entry, wish.group, now))
        for entry_id, entry in zip(ids, entries, strict=True)
    ]


def enqueue_quickly(
    connection: Connection, wish: Wish, *, now: datetime | None, record: type[EntryT]
) -> list[EntryT] | None:
    """The same in one trip or two, where the wish is plain; None where it is not, or its group is new.

    The transaction may be over after it, so it must be one of our own.
    """
    if not _is_plain(wish):
        return None
    entries = [_entry(wish, external_id, text, None, None) for external_id, text in wish.inputs.items()]
    if wish.group is None:
        added = quick_add.add_and_commit(connection, entries, now=now)
    else:
        added = quick_add.add_to_group(connection, entries, wish.group, now=now)
    if not added:
        return None
    return [
        record(**_fields(added[one.external_id][0], one, wish.group, added[one.external_id][1]))
        for one in entries
    ]


def _is_plain(wish: Wish) -> bool:
    """Whether its entries are few, may run at once, and nobody must be asked about them."""
    may_run_at_once = wish.delay is None and wish.at is None
    return may_run_at_once and wish.unique is None and 0 < len(wish.inputs) <= work_queue.COPY_ABOVE


def clamped(priority: int) -> int:
    return min(max(0, priority), PRIORITY_MAX)


def _only_one(connection: Connection, entry: NewEntry, record: type[EntryT], now: datetime) -> EntryT:
    """The entry that has the key: this one, or an earlier one whose job is not over yet."""
    found = unique_entries.add_or_find(connection, entry, now=now)
    return record(**found.as_fields())


def _entry(
    wish: Wish, external_id: str, text: str, group: ManifestGroup | None, now: datetime | None
) -> NewEntry:
    return NewEntry(
        external_id=external_id,
        train=wish.train,
        origin=wish.origin,
        input=text,
        priority=clamped(wish.priority),
        group_id=group.id if group else None,
        group_priority=group.priority if group else 0,
        unique_key=wish.unique,
        scheduled_at=now + wish.delay if wish.delay and now else wish.at,
        timeout_seconds=wish.timeout_seconds,
        retry=wish.retry,
    )


def _fields(entry_id: int, entry: NewEntry, group: str | None, now: datetime) -> dict[str, Any]:
    return {
        "id": entry_id,
        "external_id": entry.external_id,
        "train": entry.train,
        "status": QueueStatus.QUEUED,
        "origin": entry.origin,
        "priority": entry.priority,
        "group": group,
        "input": parsed(entry.input),
        "scheduled_at": entry.scheduled_at,
        "created_at": now,
    }
