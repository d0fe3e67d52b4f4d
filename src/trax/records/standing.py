"""How a manifest stands: everything that decides what happens to it next."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from trax.records.retry_policy import RetryPolicy
    from trax.records.states import Origin
    from trax.records.when import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What a dependent needs to know of the manifest it depends on."""

    is_open: bool
    """Enabled, or done for good: a `once` manifest is switched off by its own success. Not retired."""
    last_successful_run: datetime | None
    is_retired: bool = False


class Standing(NamedTuple):
    """One manifest in the moment the manager looks at it."""

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
    """Failures since a person last dealt with it."""
    gave_up_reason: str | None = None
    retry_at: datetime | None = None
    """When its last run asked to be tried again, if it did."""
    attempt_cancelled: bool = False
    """Its last attempt was cancelled: the next one is its next regular run."""
    consumed_parent_success_at: datetime | None = None
    has_awaiting_dead_letter: bool = False
    has_queued_entry: bool = False
    active_runs: int = 0
    latest_attempt: int = 0
    """The highest number among the active runs, each of which knows how many failures came before it.

    Only of a manifest that has failed: of others it is 0.
    """
    is_retired: bool = False
    retry: RetryPolicy | None = None
    parent: Parent | None = None

    @property
    def is_being_retried(self) -> bool:
        return self.latest_attempt > self.failure_count


class ToQueue(NamedTuple):
    """Write an entry for it. `look_again_at`: when the next one may be written though this has not ended."""

    origin: Origin
    priority: int
    scheduled_for: datetime | None
    scheduled_at: datetime | None = None
    consumed_parent_success_at: datetime | None = None
    look_again_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ToDeadLetter:
    """It gave up: write a dead letter."""

    reason: str
    failures: int


@dataclass(frozen=True, slots=True)
class ToWait:
    """Nothing to do before this moment."""

    until: datetime


@dataclass(frozen=True, slots=True)
class ToRest:
    """Nothing to do until something happens to it. `code` is the reason in one word, for programs."""

    reason: str
    code: str = field(default="never_due", compare=False)


@dataclass(frozen=True, slots=True)
class ToDefer:
    """Leave it to servers that can evaluate it: here that is not possible. It is looked at again soon."""

    reason: str
    until: datetime


Decision = ToQueue | ToDeadLetter | ToWait | ToRest | ToDefer
