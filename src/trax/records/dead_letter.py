"""Dead letters: jobs that failed for good and await a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trax.records.states import DeadLetterStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A job that failed for good and awaits a person, who requeues or acknowledges it."""

    id: int
    """Its id."""
    manifest: str | None = None
    """The external id of its manifest; None: the job was queued without one."""
    train: str
    """The name of the train."""
    status: DeadLetterStatus
    """`awaiting_intervention`, then `retried` or `acknowledged`."""
    reason: str
    """Why it is not retried any more."""
    retry_count: int
    """How many of its runs have failed."""
    input: Any = None
    """The input of its runs."""
    dead_lettered_at: datetime
    """When it became a dead letter."""
    resolved_at: datetime | None = None
    """When it was requeued or acknowledged."""
    note: str | None = None
    """The operator's note."""
    retry_metadata_id: int | None = None
    """The id of the run it was requeued as."""
    last_metadata_id: int | None = None
    """The id of the last failed run; its record may have been deleted."""
    failure_exception: str | None = None
    """The exception of that run."""
    failure_junction: str | None = None
    """The junction in which it failed."""
    failure_reason: str | None = None
    """The exception's message."""
    fingerprint: str = ""
    """The same for failures that differ only in numbers, ids and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Open dead letters with the same fingerprint: their number, first and last time, and the latest one."""

    fingerprint: str
    train: str
    count: int
    first_at: datetime
    last_at: datetime
    sample: DeadLetter
