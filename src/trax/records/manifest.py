"""Manifests (which train runs when), their retry policies, and manifest groups (shared limits)."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.bounds import LONGEST_DURATION
from trax.clock import TextDuration, format_duration
from trax.records.states import ScheduleType

if TYPE_CHECKING:
    from collections.abc import Collection

    from trax.records.schedule import Timing
    from trax.records.states import Origin

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """Manifests that share a limit and a priority."""

    id: int
    """Its id."""
    name: str
    """Its name."""
    priority: int = 0
    """From 0 to 31; groups with a higher priority go first."""
    max_active_jobs: int | None = None
    """The maximum number of its runs that are pending or in progress at once; None: no limit."""
    enabled: bool = True
    """Whether its entries are dispatched."""
    retired_at: datetime | None = None
    """When it was retired: nothing names or needs it any more; None: it is in use."""


LIMIT_FIELDS: Final = ("max_active_jobs", "enabled")
"""The fields of a group that limit its runs: a disabled group admits none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Which train runs when, with which input, and how often it is retried."""

    id: int
    """Its id."""
    external_id: str
    """Its name in code."""
    train: str
    """The name of the train it runs."""
    group: str
    """The name of its group."""
    schedule: str | None = None
    """When it runs, in words."""
    schedule_type: ScheduleType
    """The type of its schedule."""
    enabled: bool = True
    """Whether its schedule is active."""
    priority: int = 0
    """From 0 to 31, within its group."""
    max_attempts: int = 3
    """How many failed runs in a row make a dead letter; `max_retries` is another name."""
    timeout: TextDuration | None = None
    """How long a run may take; None: the setting `default_job_timeout`."""
    depends_on: str | None = None
    """The external id of its parent: it runs after each success of the parent."""
    input: Any = None
    """The input of its runs."""
    failure_count: int = 0
    """How many of its runs have failed in a row."""
    last_successful_run: datetime | None = None
    """When it last succeeded."""
    next_due_at: datetime | None = None
    """When the manager checks it next; None while it is queued or runs, and when nothing is due."""
    retired_at: datetime | None = None
    """When it was retired: it does not run any more, and its history is kept; None: it is in use."""

    @property
    def max_retries(self) -> int:
        """Another name of `max_attempts`."""
        return self.max_attempts


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
    """Write a dead letter: its last attempt failed."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits between attempts: `delay`, then `multiplier` times as long each time, up to `max_delay`.

    `jitter` adds up to that share of a wait, so that jobs that failed together are not retried together. No
    wait exceeds `max_delay`: near it the jitter shortens the wait instead, but not below `delay`.
    `give_up_on` are the qualified names of exception classes that are not retried.
    """

    delay: timedelta
    multiplier: float
    max_delay: timedelta
    jitter: float = 0.0
    max_attempts: int = 3
    give_up_on: tuple[str, ...] = ()

    def wait_after(self, failures: int, *, random: float = 0.0) -> timedelta:
        """How long to wait after this many failures in a row; `random` in [0, 1] selects the jitter."""
        most = min(self.max_delay, LONGEST_DURATION)
        shortest = min(self._wait_without_jitter(failures), max(self.delay, most / (1 + self.jitter)))
        longest = min(shortest * (1 + self.jitter), most)
        return min(shortest + (longest - shortest) * random, most)

    def _wait_without_jitter(self, failures: int) -> timedelta:
        """Without the jitter. A long row of failures must not overflow, so the factor is compared first."""
        if not self.delay:
            return timedelta(0)
        most = min(self.max_delay, LONGEST_DURATION)
        try:
            factor = float(self.multiplier) ** (failures - 1)
        except OverflowError:
            return most
        return min(self.delay * factor, most) if factor < most / self.delay else most

    def __str__(self) -> str:
        """As it is written in code, without what is left out there."""
        parts = [
            f"max_attempts={self.max_attempts}",
            f"delay={format_duration(self.delay)}",
            f"multiplier={self.multiplier:g}",
            f"max_delay={format_duration(self.max_delay)}",
            *([f"jitter={self.jitter:g}"] if self.jitter else ()),
            *([f"give_up_on={', '.join(self.give_up_on)}"] if self.give_up_on else ()),
        ]
        return f"Retry({', '.join(parts)})"

    def to_json(self) -> str:
        waits = {"delay": self.delay.total_seconds(), "max_delay": self.max_delay.total_seconds()}
        shape = {"multiplier": self.multiplier, "jitter": self.jitter, "max_retries": self.max_attempts}
        return json.dumps(waits | shape | {"give_up_on": self.give_up_on}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | None) -> RetryPolicy | None:
        """Parse a stored policy; None for None and for invalid text: a bad row must not stop a cycle."""
        if text is None:
            return None
        try:
            stored = json.loads(text)
            return cls(
                delay=timedelta(seconds=stored["delay"]),
                multiplier=float(stored["multiplier"]),
                max_delay=timedelta(seconds=stored["max_delay"]),
                jitter=float(stored["jitter"]),
                max_attempts=int(stored["max_retries"]),
                give_up_on=tuple(map(str, stored.get("give_up_on", ()))),
            )
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            logger.warning(
                "retry policy: stored text cannot be parsed; using the default policy: %.80s", text
            )
            return None


def should_give_up(policy: RetryPolicy | None, raised: Collection[str], *, default: bool) -> bool:
    """Whether an error whose classes have these names is not retried.

    The stored policy decides; `default` is the result without a policy, or if nothing was raised.
    """
    return default if policy is None or not raised else not set(policy.give_up_on).isdisjoint(raised)
