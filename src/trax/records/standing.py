"""The state of a manifest, from which its next step is decided, and the possible decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trax.records.retry_policy import RetryPolicy
    from trax.records.states import Origin
    from trax.records.when import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentState:
    """What a dependent manifest needs to know of its parent."""

    is_open: bool
    """Enabled, or a `once` manifest that was disabled by its own success. Not retired."""
    last_successful_run: datetime | None
    is_retired: bool = False


class ManifestState(NamedTuple):
    """One manifest at the moment when the manager decides about it."""

    timing: Timing
    id: int
    external_id: str
    enabled: bool
    group_priority: int
    group_enabled: bool
    max_retries: int
    failure_count: int = 0
    """Failures in a row."""
    lifetime_failures: int = 0
    """Failures since its last dead letter was resolved."""
    gave_up_reason: str | None = None
    retry_at: datetime | None = None
    """When its last run requested to be retried, if it did."""
    attempt_cancelled: bool = False
    """Whether its last attempt was cancelled: then it is not retried before its next regular run."""
    consumed_parent_success_at: datetime | None = None
    has_awaiting_dead_letter: bool = False
    has_queued_entry: bool = False
    active_runs: int = 0
    latest_attempt: int = 0
    """The highest attempt number among the active runs; 0 for a manifest that has not failed."""
    is_retired: bool = False
    retry: RetryPolicy | None = None
    parent: ParentState | None = None

    @property
    def is_being_retried(self) -> bool:
        return self.latest_attempt > self.failure_count


class ToEnqueue(NamedTuple):
    """Insert an entry. `next_due_at`: when the next entry is due, though this one has not ended."""

    origin: Origin
    priority: int
    scheduled_for: datetime | None
    scheduled_at: datetime | None = None
    consumed_parent_success_at: datetime | None = None
    next_due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ToDeadLetter:
    """Write a dead letter: it failed for good."""

    reason: str
    failures: int


@dataclass(frozen=True, slots=True)
class ToWait:
    """Nothing to do until this time."""

    until: datetime


@dataclass(frozen=True, slots=True)
class ToRest:
    """No next due time until the manifest changes. `code` is the reason in one word, for programs."""

    reason: str
    code: str = field(default="never_due", compare=False)


@dataclass(frozen=True, slots=True)
class ToDefer:
    """Leave it to other servers, because this one cannot evaluate it, and check again at `until`."""

    reason: str
    until: datetime


Decision = ToEnqueue | ToDeadLetter | ToWait | ToRest | ToDefer
