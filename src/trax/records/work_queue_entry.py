"""One wish to run a train."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from trax.records.states import Origin, QueueStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkQueueEntry:
    """One wish to run a train, waiting at the gate or let through it."""

    id: int
    external_id: str
    train: str
    status: QueueStatus
    origin: Origin
    priority: int = 0
    manifest: str | None = None
    group: str | None = None
    input: Any = None
    metadata_id: int | None = None
    scheduled_at: datetime | None = None
    created_at: datetime
    dispatched_at: datetime | None = None
    dispatch_attempts: int = 0
    dead_letter_id: int | None = None

    def as_fields(self) -> dict[str, Any]:
        """The values by name, as they are: what another record of the same entry is made of."""
        return {each.name: getattr(self, each.name) for each in fields(WorkQueueEntry)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
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
