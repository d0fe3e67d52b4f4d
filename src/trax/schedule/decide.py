"""What happens to a manifest the manager looks at. No I/O: give it a standing, get a decision."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from trax.bounds import PRIORITY_MAX
from trax.errors import DefinitionError
from trax.records.retry_policy import RetryPolicy
from trax.records.standing import Decision, Standing, ToDeadLetter, ToDefer, ToQueue, ToRest, ToWait
from trax.records.states import Origin, ScheduleType
from trax.schedule.due import LEFT_TO_OTHERS, Fire, Never, Wait, look, next_overlapping
from trax.schedule.exclusions import first_allowed

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.when import Timing


BY_HAND = (ScheduleType.NONE, ScheduleType.ON_DEMAND, ScheduleType.DORMANT_DEPENDENT)
AFTER_ANOTHER = (ScheduleType.DEPENDENT, ScheduleType.DORMANT_DEPENDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a decision depends on beside the manifest: settings, and `random`, which draws the jitter.

    It draws once for each retry, so that what failed together is not tried again together; None: no jitter.
    """

    retry: RetryPolicy
    dependent_priority_boost: int
    failure_counting: Literal["consecutive", "lifetime"] = "consecutive"
    random: Random | None = None

    def failures(self, manifest: Standing) -> int:
        """The failures that count towards giving up."""
        is_for_life = self.failure_counting == "lifetime"
        return manifest.lifetime_failures if is_for_life else manifest.failure_count


def decide(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    """Queue it, give it up, look again later, or leave it until something happens to it."""
    try:
        return _decided(manifest, rules, now)
    except DefinitionError as broken:  # a zone this server does not know, say: it must not stop the others
        return ToDefer(str(broken), now + LEFT_TO_OTHERS)


def _decided(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    if left_alone := _left_alone(manifest):
        return left_alone
    if manifest.gave_up_reason or rules.failures(manifest) >= max(1, manifest.max_retries):
        return ToDeadLetter(_why_it_gave_up(manifest, rules), rules.failures(manifest))
    if manifest.is_retired:
        return _after_retirement(manifest, rules)
    if occupied := _while_occupied(manifest, now):
        return occupied
    if closed := _closed(manifest, now):
        return closed
    return _next_run(manifest, rules, now)


def _next_run(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    if manifest.failure_count and not (manifest.is_being_retried or manifest.attempt_cancelled):
        return _another_try(manifest, rules, now)
    kind = manifest.timing.schedule_type
    if kind in BY_HAND:
        return ToRest(f"its type is {kind}: it is started by hand or by its parent", "by_hand")
    if kind is ScheduleType.DEPENDENT:
        return _after_its_parent(manifest, rules, now)
    return _when_due(manifest, rules, now)


def _after_retirement(manifest: Standing, rules: Rules) -> Decision:
    """It has no next run. A run that failed is not tried again by itself: a person decides."""
    is_under_way = manifest.active_runs or manifest.has_queued_entry
    if manifest.failure_count and not (is_under_way or manifest.attempt_cancelled):
        return ToDeadLetter(_why_it_gave_up(manifest, rules), rules.failures(manifest))
    return ToRest("it is retired", "retired")


def _left_alone(manifest: Standing) -> ToRest | None:
    if not manifest.enabled and not manifest.is_retired:
        return ToRest("it is disabled", "disabled")
    if manifest.has_awaiting_dead_letter:
        return ToRest("its dead letter awaits a person", "dead_letter")
    return None


def _why_it_gave_up(manifest: Standing, rules: Rules) -> str:
    failures = rules.failures(manifest)
    if manifest.gave_up_reason and not failures:
        return manifest.gave_up_reason  # it never ran: nobody took it
    in_all = "in a row" if rules.failure_counting == "consecutive" else "since a person last dealt with it"
    times = "once" if failures == 1 else f"{failures} times {in_all}"
    limit = "it is retired" if manifest.is_retired else f"max_retries is {manifest.max_retries}"
    return f"failed {times}; {manifest.gave_up_reason or limit}"


def _closed(manifest: Standing, now: datetime) -> ToRest | ToDefer | None:
    kind = manifest.timing.schedule_type
    if manifest.timing.broken and kind not in BY_HAND:
        return ToDefer(manifest.timing.broken, now + LEFT_TO_OTHERS)
    if not manifest.group_enabled:
        return ToRest("its group is disabled", "group_disabled")
    if kind is ScheduleType.DEPENDENT and not (manifest.parent and manifest.parent.is_open):
        is_retired = manifest.parent is not None and manifest.parent.is_retired
        state = "retired" if is_retired else "disabled" if manifest.parent else "missing"
        return ToRest(f"its parent is {state}", "parent_closed")
    return None


def _while_occupied(manifest: Standing, now: datetime) -> Decision | None:
    """One entry at a time, and no more runs than may overlap."""
    if manifest.active_runs >= manifest.timing.max_instances:
        most = manifest.timing.max_instances
        return ToRest(f"{manifest.active_runs} of at most {most} runs are active", "active")
    if not manifest.has_queued_entry:
        return None
    upcoming = next_overlapping(manifest.timing, manifest.timing.last_scheduled_for, now)
    return ToRest("an entry of it is queued already", "queued") if upcoming is None else ToWait(upcoming)


def _another_try(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    """After a failure: the same occurrence again, once the wait is over and no exclusion holds it back.

    An exclusion counts now, and where the wait ends: a retry begins at the first allowed moment after it.
    """
    timing = manifest.timing
    wanted = max(timing.next_scheduled_run or now, now)  # an attempt that was cancelled puts off the next
    allowed = _first_allowed(timing, wanted)
    if allowed is not None and allowed > now:
        return ToWait(allowed)
    chance = rules.random.random() if rules.random else 0.0
    wait = (manifest.retry or rules.retry).wait_after(manifest.failure_count, chance=chance)
    start = None if allowed is None else _first_allowed(timing, manifest.retry_at or now + wait)
    if start is None:
        return ToRest("it is excluded for good", "excluded")
    occurrence = None if timing.schedule_type in BY_HAND else timing.last_scheduled_for
    return _entry(manifest, rules, now, Origin.RETRY, occurrence, start=start)


def _first_allowed(timing: Timing, wanted: datetime) -> datetime | None:
    """When it may start by itself. Exclusions are about time, and a dependent does not run by time."""
    if timing.schedule_type in AFTER_ANOTHER:
        return wanted
    return first_allowed(timing.exclusions, timing.time_zone, wanted)


def _after_its_parent(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    """A success of the parent wakes it once, also one that came while it was running itself."""
    success = manifest.parent.last_successful_run if manifest.parent else None
    consumed = manifest.consumed_parent_success_at
    if success is None:
        return ToRest("its parent has not succeeded yet", "parent")
    if consumed is not None and success <= consumed:
        return ToRest("its parent has not succeeded since it was last queued", "parent")
    return _entry(manifest, rules, now, Origin.SCHEDULE, success, consumed=success)


def _when_due(manifest: Standing, rules: Rules, now: datetime) -> Decision:
    match look(manifest.timing, now):
        case Fire(scheduled_for):
            return _entry(manifest, rules, now, Origin.SCHEDULE, scheduled_for)
        case Wait(until):
            return ToWait(until)
        case Never(reason, unreadable=True):
            return ToDefer(reason, now + LEFT_TO_OTHERS)
        case Never(reason):
            return ToRest(reason)


def _entry(
    manifest: Standing,
    rules: Rules,
    now: datetime,
    origin: Origin,
    scheduled_for: datetime | None,
    *,
    start: datetime | None = None,
    consumed: datetime | None = None,
) -> ToQueue:
    timing, priority = manifest.timing, manifest.group_priority
    if timing.schedule_type in AFTER_ANOTHER:
        priority = min(priority + rules.dependent_priority_boost, PRIORITY_MAX)
    look_again_at = next_overlapping(timing, scheduled_for, now)
    return ToQueue(origin, priority, scheduled_for, start, consumed, look_again_at)
