"""Decide what the manifest manager does with a manifest: queue, retry, dead-letter, wait. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from trax.bounds import PRIORITY_MAX
from trax.errors import DefinitionError
from trax.records.retry_policy import RetryPolicy
from trax.records.standing import Decision, ManifestState, ToDeadLetter, ToDefer, ToEnqueue, ToRest, ToWait
from trax.records.states import Origin, ScheduleType
from trax.schedule.due import (
    UNREADABLE_RECHECK_DELAY,
    Fire,
    Never,
    Wait,
    check_due,
    next_overlapping_occurrence,
)
from trax.schedule.exclusions import first_allowed

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.when import Timing


MANUAL_TYPES = (ScheduleType.NONE, ScheduleType.ON_DEMAND, ScheduleType.DORMANT_DEPENDENT)
DEPENDENT_TYPES = (ScheduleType.DEPENDENT, ScheduleType.DORMANT_DEPENDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings that a decision depends on, and `random`, the source of the retry jitter.

    Each retry draws its own jitter, so that runs that failed together are not retried together. None: off.
    """

    retry: RetryPolicy
    dependent_priority_boost: int
    failure_counting: Literal["consecutive", "lifetime"] = "consecutive"
    random: Random | None = None

    def failures(self, manifest: ManifestState) -> int:
        """The number of failures that counts towards a dead letter."""
        counts_lifetime = self.failure_counting == "lifetime"
        return manifest.lifetime_failures if counts_lifetime else manifest.failure_count


def decide(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Queue a run, create a dead letter, check again later, or rest until an event."""
    try:
        return _choose(manifest, rules, now)
    except DefinitionError as broken:  # e.g. an unknown time zone; it must not stop the others
        return ToDefer(str(broken), now + UNREADABLE_RECHECK_DELAY)


def _choose(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    if rest := _check_operator_hold(manifest):
        return rest
    if manifest.gave_up_reason or rules.failures(manifest) >= max(1, manifest.max_retries):
        return ToDeadLetter(_dead_letter_reason(manifest, rules), rules.failures(manifest))
    if manifest.is_retired:
        return _after_retirement(manifest, rules)
    if decision := _check_active_runs(manifest, now):
        return decision
    if decision := _check_blockers(manifest, now):
        return decision
    return _next_run(manifest, rules, now)


def _next_run(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    if manifest.failure_count and not (manifest.is_being_retried or manifest.attempt_cancelled):
        return _retry(manifest, rules, now)
    kind = manifest.timing.schedule_type
    if kind in MANUAL_TYPES:
        return ToRest(f"its type is {kind}: it runs only when triggered or activated", "by_hand")
    if kind is ScheduleType.DEPENDENT:
        return _check_parent(manifest, rules, now)
    return _check_schedule(manifest, rules, now)


def _after_retirement(manifest: ManifestState, rules: Rules) -> Decision:
    """A retired manifest has no next run. A failed run is not retried: it becomes a dead letter."""
    is_under_way = manifest.active_runs or manifest.has_queued_entry
    if manifest.failure_count and not (is_under_way or manifest.attempt_cancelled):
        return ToDeadLetter(_dead_letter_reason(manifest, rules), rules.failures(manifest))
    return ToRest("it is retired", "retired")


def _check_operator_hold(manifest: ManifestState) -> ToRest | None:
    if not manifest.enabled and not manifest.is_retired:
        return ToRest("it is disabled", "disabled")
    if manifest.has_awaiting_dead_letter:
        return ToRest("its dead letter awaits a person", "dead_letter")
    return None


def _dead_letter_reason(manifest: ManifestState, rules: Rules) -> str:
    failures = rules.failures(manifest)
    if manifest.gave_up_reason and not failures:
        return manifest.gave_up_reason  # it never ran: no worker claimed it
    period = "in a row" if rules.failure_counting == "consecutive" else "since the last intervention"
    times = "once" if failures == 1 else f"{failures} times {period}"
    limit = "it is retired" if manifest.is_retired else f"max_retries is {manifest.max_retries}"
    return f"failed {times}; {manifest.gave_up_reason or limit}"


def _check_blockers(manifest: ManifestState, now: datetime) -> ToRest | ToDefer | None:
    kind = manifest.timing.schedule_type
    if manifest.timing.broken and kind not in MANUAL_TYPES:
        return ToDefer(manifest.timing.broken, now + UNREADABLE_RECHECK_DELAY)
    if not manifest.group_enabled:
        return ToRest("its group is disabled", "group_disabled")
    if kind is ScheduleType.DEPENDENT and not (manifest.parent and manifest.parent.is_open):
        is_retired = manifest.parent is not None and manifest.parent.is_retired
        state = "retired" if is_retired else "disabled" if manifest.parent else "missing"
        return ToRest(f"its parent is {state}", "parent_closed")
    return None


def _check_active_runs(manifest: ManifestState, now: datetime) -> Decision | None:
    """Allow one queued entry at a time, and at most `max_instances` active runs."""
    if manifest.active_runs >= manifest.timing.max_instances:
        most = manifest.timing.max_instances
        return ToRest(f"{manifest.active_runs} of at most {most} runs are active", "active")
    if not manifest.has_queued_entry:
        return None
    upcoming = next_overlapping_occurrence(manifest.timing, manifest.timing.last_scheduled_for, now)
    return ToRest("it already has a queued entry", "queued") if upcoming is None else ToWait(upcoming)


def _retry(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Retry the same occurrence after a failure, when the retry delay is over and no exclusion applies.

    Exclusions are checked now and at the end of the delay: the retry starts at the first allowed time then.
    """
    timing = manifest.timing
    earliest = max(timing.next_scheduled_run or now, now)  # a cancelled attempt postpones the next one
    allowed = _first_allowed(timing, earliest)
    if allowed is not None and allowed > now:
        return ToWait(allowed)
    chance = rules.random.random() if rules.random else 0.0
    wait = (manifest.retry or rules.retry).wait_after(manifest.failure_count, random=chance)
    start = None if allowed is None else _first_allowed(timing, manifest.retry_at or now + wait)
    if start is None:
        return ToRest("its exclusions allow no start within ten years", "excluded")
    occurrence = None if timing.schedule_type in MANUAL_TYPES else timing.last_scheduled_for
    return _queue_decision(manifest, rules, now, Origin.RETRY, occurrence, start=start)


def _first_allowed(timing: Timing, moment: datetime) -> datetime | None:
    """The first time from this moment on that no exclusion covers. Exclusions do not apply to dependents."""
    if timing.schedule_type in DEPENDENT_TYPES:
        return moment
    return first_allowed(timing.exclusions, timing.time_zone, moment)


def _check_parent(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    """Run once after each success of the parent, including one that happened during a run of its own."""
    success = manifest.parent.last_successful_run if manifest.parent else None
    consumed = manifest.consumed_parent_success_at
    if success is None:
        return ToRest("its parent has not succeeded yet", "parent")
    if consumed is not None and success <= consumed:
        return ToRest("its parent has not succeeded since it was last queued", "parent")
    return _queue_decision(manifest, rules, now, Origin.SCHEDULE, success, consumed_parent_success=success)


def _check_schedule(manifest: ManifestState, rules: Rules, now: datetime) -> Decision:
    match check_due(manifest.timing, now):
        case Fire(scheduled_for):
            return _queue_decision(manifest, rules, now, Origin.SCHEDULE, scheduled_for)
        case Wait(until):
            return ToWait(until)
        case Never(reason, unreadable=True):
            return ToDefer(reason, now + UNREADABLE_RECHECK_DELAY)
        case Never(reason):
            return ToRest(reason)


def _queue_decision(
    manifest: ManifestState,
    rules: Rules,
    now: datetime,
    origin: Origin,
    scheduled_for: datetime | None,
    *,
    start: datetime | None = None,
    consumed_parent_success: datetime | None = None,
) -> ToEnqueue:
    timing, priority = manifest.timing, manifest.group_priority
    if timing.schedule_type in DEPENDENT_TYPES:
        priority = min(priority + rules.dependent_priority_boost, PRIORITY_MAX)
    next_due_at = next_overlapping_occurrence(timing, scheduled_for, now)
    return ToEnqueue(origin, priority, scheduled_for, start, consumed_parent_success, next_due_at)
