"""How a run ended, as far as its manifest is concerned, and what that changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trax.records.when import Timing


class EndKind(StrEnum):
    """What a run means to its manifest."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEnd:
    """One run of a manifest that ended: `metadata_id`, unless it ended before there was one.

    A failure also says what went wrong in words, `raised` by which names an error is given up on, whether the
    train itself would `give up`, and the `delay` it asked for before the next try, if it did.
    """

    manifest_id: int
    kind: EndKind
    ended_at: datetime
    attempt: int = 1
    error: str | None = None
    raised: tuple[str, ...] = ()
    gives_up: bool = False
    delay: timedelta | None = None
    metadata_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange:
    """What a manifest's row says after the runs that ended."""

    id: int
    enabled: bool
    failure_count: int
    lifetime_failures: int
    gave_up_reason: str | None
    failed_metadata_id: int | None
    retry_at: datetime | None
    attempt_cancelled: bool
    last_successful_run: datetime | None
    next_scheduled_run: datetime | None
    plan_after: datetime | None
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A manifest whose row is locked while the end of its runs is written down. `retry` is JSON text."""

    id: int
    enabled: bool
    retry: str | None = None
    failure_count: int
    lifetime_failures: int = 0
    gave_up_reason: str | None = None
    failed_metadata_id: int | None = None
    """The last run that counted as a failure: the one that a dead letter is about."""
    retry_at: datetime | None = None
    attempt_cancelled: bool = False
    next_due_at: datetime | None
    is_retired: bool = False
    timing: Timing
