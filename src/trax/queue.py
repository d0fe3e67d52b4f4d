"""Enqueue jobs: write requests of callers to the work queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from trax.bounds import PRIORITY_MAX
from trax.records.states import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, WorkQueueEntry
from trax.store import manifest_groups, quick_add, unique_entries, work_queue
from trax.store.json import parse_json

if TYPE_CHECKING:
    from trax.records import ManifestGroup
    from trax.store import Connection

EntryT = TypeVar("EntryT", bound=WorkQueueEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueRequest:
    """The jobs that a caller wants, with validated inputs as JSON text.

    `inputs` maps the external id of each entry (and of its runs) to the input. With a `unique` key there is
    one input, and nothing is written while an earlier job with that key has not ended. `rerun_of` is the id
    of the run that is run again.
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
    rerun_of: int | None = None


def enqueue(
    connection: Connection,
    request: EnqueueRequest,
    *,
    now: datetime,
    entry_class: type[EntryT],
    group: ManifestGroup | None = None,
) -> list[EntryT]:
    """Insert one entry for each input, in one statement; returns instances of `entry_class`.

    `group` is the group of the request if it was created just before: this transaction may not see it yet.
    """
    if group is not None:
        manifest_groups.prevent_prune(connection, group)
    elif request.group is not None:
        group = manifest_groups.get_or_create(connection, [request.group], now=now)[request.group]
    entries = [_entry(request, external_id, text, group, now) for external_id, text in request.inputs.items()]
    if request.unique is not None:
        return [_insert_unique(connection, entry, entry_class, now) for entry in entries]
    ids = work_queue.add(connection, entries, now=now)
    return [
        entry_class(**_entry_fields(entry_id, entry, request.group, now))
        for entry_id, entry in zip(ids, entries, strict=True)
    ]


def enqueue_plain(
    connection: Connection, request: EnqueueRequest, *, now: datetime | None, entry_class: type[EntryT]
) -> list[EntryT] | None:
    """Enqueue a plain request in one or two round trips; None if it is not plain, or its group is new.

    This may commit, so the transaction must not be the caller's.
    """
    if not _is_plain(request):
        return None
    entries = [_entry(request, external_id, text, None, None) for external_id, text in request.inputs.items()]
    if request.group is None:
        added = quick_add.add_and_commit(connection, entries, now=now)
    else:
        added = quick_add.add_to_group(connection, entries, request.group, now=now)
    if not added:
        return None
    return [
        entry_class(
            **_entry_fields(added[entry.external_id][0], entry, request.group, added[entry.external_id][1])
        )
        for entry in entries
    ]


def _is_plain(request: EnqueueRequest) -> bool:
    """Whether the entries are few, have no delay and no unique key."""
    may_run_at_once = request.delay is None and request.at is None
    return may_run_at_once and request.unique is None and 0 < len(request.inputs) <= work_queue.COPY_ABOVE


def clamp_priority(priority: int) -> int:
    return min(max(0, priority), PRIORITY_MAX)


def _insert_unique(
    connection: Connection, entry: NewEntry, entry_class: type[EntryT], now: datetime
) -> EntryT:
    """Insert the entry, or return the earlier one with this key whose job has not ended."""
    found = unique_entries.add_or_find(connection, entry, now=now)
    return entry_class(**found.as_fields())


def _entry(
    request: EnqueueRequest, external_id: str, text: str, group: ManifestGroup | None, now: datetime | None
) -> NewEntry:
    return NewEntry(
        external_id=external_id,
        train=request.train,
        origin=request.origin,
        input=text,
        priority=clamp_priority(request.priority),
        group_id=group.id if group else None,
        group_priority=group.priority if group else 0,
        unique_key=request.unique,
        scheduled_at=now + request.delay if request.delay and now else request.at,
        timeout_seconds=request.timeout_seconds,
        retry=request.retry,
    )


def _entry_fields(entry_id: int, entry: NewEntry, group: str | None, now: datetime) -> dict[str, Any]:
    return {
        "id": entry_id,
        "external_id": entry.external_id,
        "train": entry.train,
        "status": QueueStatus.QUEUED,
        "origin": entry.origin,
        "priority": entry.priority,
        "group": group,
        "input": parse_json(entry.input),
        "scheduled_at": entry.scheduled_at,
        "created_at": now,
    }
