"""Entries of the work queue, and their external ids, which need no database."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

from trax.records.states import Origin, QueueStatus

RANDOM_BYTES = 10

POOL_SIZE = 256

PARKING_SEPARATOR = "\n"

"""Separates train and group in the key of a parked entry; names contain no line break."""

_random_pool: deque[str] = deque()

os.register_at_fork(after_in_child=_random_pool.clear)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueueEntry:
    """One job in the work queue."""

    id: int
    """Its id."""
    external_id: str
    """The external id of the job, shared with its runs."""
    train: str
    """The name of the train."""
    status: QueueStatus
    """`queued`, then `dispatched` or `cancelled`."""
    origin: Origin
    """Why it was queued."""
    priority: int = 0
    """From 0 to 31; a higher priority goes first."""
    manifest: str | None = None
    """The external id of its manifest, if it has one."""
    group: str | None = None
    """The name of its group, if it has one."""
    input: Any = None
    """The input of the job."""
    metadata_id: int | None = None
    """The id of the run it was dispatched as."""
    scheduled_at: datetime | None = None
    """It does not run before this time."""
    created_at: datetime
    """When it was queued."""
    dispatched_at: datetime | None = None
    """When it was dispatched."""
    dispatch_attempts: int = 0
    """How often the hand-over to a submitter has failed."""
    dead_letter_id: int | None = None
    """The dead letter it was requeued from."""
    parked_at: datetime | None = None
    """When it was parked because no live worker accepts its train or its group."""

    def as_fields(self) -> dict[str, Any]:
        """The field values by name, to build an instance of a subclass."""
        return {each.name: getattr(self, each.name) for each in fields(WorkQueueEntry)}


class NewEntry(NamedTuple):
    """An entry to be written. `input` and `retry` are JSON text."""

    external_id: str
    train: str
    origin: Origin
    input: str | None = None
    priority: int = 0
    group_id: int | None = None
    group_priority: int = 0
    manifest_id: int | None = None
    dead_letter_id: int | None = None
    unique_key: str | None = None
    attempt: int = 1
    retry: str | None = None
    timeout_seconds: float | None = None
    scheduled_at: datetime | None = None
    scheduled_for: datetime | None = None


def new_external_id() -> str:
    """32 hex characters: the time first, so that ids of the same time are close in the index, then random."""
    return f"{time.time_ns() // 1_000_000:012x}{_random_hex()}"


def _random_hex() -> str:
    """20 random hex characters, from a pool: a `urandom` call per id would dominate the cost of an entry."""
    while True:
        try:
            return _random_pool.popleft()
        except IndexError:
            text = os.urandom(RANDOM_BYTES * POOL_SIZE).hex()
            _random_pool.extend(
                text[at : at + 2 * RANDOM_BYTES] for at in range(0, len(text), 2 * RANDOM_BYTES)
            )
