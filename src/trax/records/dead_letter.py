"""What gave up and waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trax.records.states import DeadLetterStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What gave up and waits for a person, who requeues or acknowledges it."""

    id: int
    """Its number."""
    manifest: str | None = None
    """The external id of the manifest that gave up; None: a job that was queued without one."""
    train: str
    """The name of the train."""
    status: DeadLetterStatus
    """`awaiting_intervention`, and then `retried` or `acknowledged`."""
    reason: str
    """Why it gave up."""
    retry_count: int
    """How many of its runs have failed."""
    input: Any = None
    """What it was run with."""
    dead_lettered_at: datetime
    """When it gave up."""
    resolved_at: datetime | None = None
    """When somebody dealt with it."""
    note: str | None = None
    """What they had to say."""
    retry_metadata_id: int | None = None
    """The run it was requeued as."""
    last_metadata_id: int | None = None
    """The run that failed last; its record may be gone by now."""
    failure_exception: str | None = None
    """The exception that run failed with."""
    failure_junction: str | None = None
    """The junction it failed in."""
    failure_reason: str | None = None
    """The exception's message."""
    fingerprint: str = ""
    """The same for failures that differ in numbers, ids and names only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Letters that wait for the same reason: how many, since when, and the latest of them."""

    fingerprint: str
    train: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: DeadLetter
