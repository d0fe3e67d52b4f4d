"""One wish to run a train."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

from trax.records.states import Origin, QueueStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueueEntry:
    """One wish to run a train, waiting at the gate or let through it."""

    id: int
    """Its number."""
    external_id: str
    """The name that its runs will have."""
    train: str
    """The name of the train."""
    status: QueueStatus
    """`queued`, and then `dispatched` or `cancelled`."""
    origin: Origin
    """Who asked for it."""
    priority: int = 0
    """From 0 to 31; the higher one goes first."""
    manifest: str | None = None
    """The external id of its manifest, if it has one."""
    group: str | None = None
    """The name of its group, if it has one."""
    input: Any = None
    """What the train is to be run with."""
    metadata_id: int | None = None
    """The run it was let through as."""
    scheduled_at: datetime | None = None
    """The moment before which it does not run."""
    created_at: datetime
    """When it was queued."""
    dispatched_at: datetime | None = None
    """When it was let through the gate."""
    dispatch_attempts: int = 0
    """How often handing it to a submitter has failed."""
    dead_letter_id: int | None = None
    """The dead letter it was requeued from."""
    parked_at: datetime | None = None
    """Since when it waits because no live worker takes its train or its group."""

    def as_fields(self) -> dict[str, Any]:
        """The values by name, as they are: what another record of the same entry is made of."""
        return {each.name: getattr(self, each.name) for each in fields(WorkQueueEntry)}


class NewEntry(NamedTuple):
    """An entry about to be written. `input` and `retry` are JSON text."""

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
