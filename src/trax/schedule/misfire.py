"""Check interval and cron schedules, and apply the misfire policy to occurrences that were missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from trax.bounds import is_integer
from trax.errors import DefinitionError, did_you_mean, format_value
from trax.records.schedule import Cron, Interval, Misfire
from trax.records.states import MisfirePolicy, ScheduleType
from trax.schedule.cron import latest_occurrence, next_occurrence, parse_expression
from trax.schedule.exclusions import exclusion_start, is_excluded
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from trax.records.schedule import Timing


@dataclass(frozen=True, slots=True)
class Fire:
    """Run now, for the occurrence `scheduled_for`: `now` for a first run, the latest missed if late."""

    scheduled_for: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Not due; check again at `until`."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Never:
    """Never due by time. `unreadable`: this server cannot evaluate the schedule, but another one may."""

    reason: str
    unreadable: bool = False


DueStatus: TypeAlias = Fire | Wait | Never


RESOLUTION = timedelta(microseconds=1)


class IntervalMoments(NamedTuple):
    """The occurrences of an interval: `anchor` plus multiples of `step`."""

    anchor: datetime
    step: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return self._up_to(moment) + self.step

    def latest(self, up_to: datetime, after: datetime) -> datetime | None:
        moment = self._up_to(up_to)
        return moment if moment > after else None

    def oldest_of(self, limit: int, up_to: datetime, after: datetime) -> datetime | None:
        """The oldest of the latest `limit` occurrences after `after` and up to `up_to`."""
        latest = self.latest(up_to, after)
        return None if latest is None else max(self.next_after(after), latest - (limit - 1) * self.step)

    def _up_to(self, moment: datetime) -> datetime:
        return self.anchor + (moment - self.anchor) // self.step * self.step


class CronMoments(NamedTuple):
    """The occurrences of a cron expression."""

    cron: Cron

    def next_after(self, moment: datetime) -> datetime:
        return next_occurrence(self.cron, moment)

    def latest(self, up_to: datetime, after: datetime) -> datetime | None:
        return latest_occurrence(self.cron, up_to, after)

    def oldest_of(self, limit: int, up_to: datetime, after: datetime) -> datetime | None:
        oldest = None
        for _ in range(limit):
            earlier = self.latest(up_to, after)
            if earlier is None:
                break
            oldest, up_to = earlier, earlier - RESOLUTION
        return oldest


ScheduleMoments: TypeAlias = IntervalMoments | CronMoments


def schedule_moments(timing: Timing, anchor: datetime) -> ScheduleMoments:
    """The occurrences of a manifest. Raises DefinitionError for a schedule that cannot be evaluated.

    An interval is counted from `anchor`; an anchored interval from the creation of the manifest.
    """
    kind, schedule = timing.schedule_type, timing.schedule
    if kind is ScheduleType.INTERVAL and isinstance(schedule, Interval):
        return IntervalMoments(timing.created_at if schedule.anchored else anchor, _step(schedule.seconds))
    if kind is ScheduleType.CRON and isinstance(schedule, Cron):
        parse_expression(schedule.expression)
        zone_named(schedule.time_zone)
        return CronMoments(schedule)
    if kind in (ScheduleType.INTERVAL, ScheduleType.CRON):
        raise DefinitionError(f"a manifest of type {kind} without a schedule of that type never runs")
    raise DefinitionError(f"a manifest of type {kind} has no schedule")


@lru_cache
def _step(seconds: int) -> timedelta:
    if seconds <= 0:
        raise DefinitionError(f"an interval of {seconds} s is invalid; it must be 1 s or more")
    return timedelta(seconds=seconds)


OnMisfire: TypeAlias = Literal["fire_once_now", "do_nothing"] | Misfire

MAX_CATCH_UP: Final = 1000
"""Finding the oldest of 1000 missed cron occurrences takes about 20 ms at each check."""


def fire_all(limit: int) -> Misfire:
    """Run every missed occurrence, oldest first, but at most the latest `limit` of them."""
    if not is_integer(limit, 1, MAX_CATCH_UP):
        raise DefinitionError(f"fire_all needs a limit from 1 to {MAX_CATCH_UP} (got {format_value(limit)})")
    return Misfire(MisfirePolicy.FIRE_ALL, limit=limit)


def policy_and_limit(on_misfire: OnMisfire) -> tuple[MisfirePolicy, int | None]:
    """The policy and limit to store for an `on_misfire` option."""
    if isinstance(on_misfire, Misfire):
        return on_misfire.policy, on_misfire.limit
    if on_misfire in _POLICY_NAMES:
        return MisfirePolicy(on_misfire), None
    hint = did_you_mean(on_misfire, _POLICY_NAMES) if isinstance(on_misfire, str) else ""
    raise DefinitionError(
        f'on_misfire must be "fire_once_now", "do_nothing" or fire_all(limit) '
        f"(got {format_value(on_misfire)}){hint}"
    )


_POLICY_NAMES = (MisfirePolicy.FIRE_ONCE_NOW.value, MisfirePolicy.DO_NOTHING.value)


SKIP_EXCLUSION_AFTER: Final = 20
"""Checking this many excluded occurrences costs as much as searching for the start of the exclusion."""


def check_regular(timing: Timing, now: datetime) -> DueStatus:
    """Check an interval or cron schedule. Before the first success it is due at once unless planned."""
    queued, planned = _last_queued(timing), _next_planned_run(timing)
    if queued is not None and planned is not None and planned <= queued:
        planned = None  # already queued; go on to the next occurrence
    since = queued or timing.last_successful_run
    pace = schedule_moments(timing, since or planned or now)
    if since is None:
        if planned is None:
            return Fire(now)
        since = planned - RESOLUTION
    due = planned or pace.next_after(since)
    return Wait(due) if due > now else _check_late(timing, pace, since, due, now)


def _next_planned_run(timing: Timing) -> datetime | None:
    """The planned next run; else the next occurrence after `plan_after`, if that is set."""
    after = timing.plan_after
    if timing.next_scheduled_run is not None or after is None:
        return timing.next_scheduled_run
    return schedule_moments(timing, anchor=after).next_after(after)


def base_time(timing: Timing) -> datetime | None:
    """The time from which the next occurrence is counted: the last success, None before the first one."""
    return _last_queued(timing) or timing.last_successful_run


def _last_queued(timing: Timing) -> datetime | None:
    """The occurrence that was queued last, if the next one is counted from it and not from a success.

    Overlapping runs, and missed occurrences that run one by one, each need an occurrence of their own.
    """
    counts = timing.max_instances > 1 or timing.misfire.policy is MisfirePolicy.FIRE_ALL
    return timing.last_scheduled_for if counts else None


def _check_late(
    timing: Timing, moments: ScheduleMoments, since: datetime, due: datetime, now: datetime
) -> DueStatus:
    """Apply the misfire policy to an occurrence that is due or overdue."""
    misfire = timing.misfire
    if misfire.policy is MisfirePolicy.FIRE_ALL:
        missed = _oldest_missed(timing, moments, since, now)
        return Fire(missed) if missed else Wait(moments.next_after(now))
    latest = max(due, moments.latest(up_to=now, after=since) or due)
    if misfire.policy is MisfirePolicy.DO_NOTHING and now - latest > misfire.threshold:
        return Wait(moments.next_after(now))
    return Fire(latest)


def _oldest_missed(
    timing: Timing, moments: ScheduleMoments, since: datetime, now: datetime
) -> datetime | None:
    """The oldest of the missed occurrences to run. An excluded occurrence does not count as missed.

    Searches back over at most 1000 occurrences, and skips a long exclusion.
    """
    limit = timing.misfire.limit or MAX_CATCH_UP
    if not timing.exclusions:
        return moments.oldest_of(limit, up_to=now, after=since)
    oldest, found, excluded, up_to = None, 0, 0, now
    for _ in range(MAX_CATCH_UP):
        moment = moments.latest(up_to, after=since)
        if moment is None or found == limit:
            break
        up_to = moment - RESOLUTION
        if not is_excluded(timing.exclusions, timing.time_zone, moment):
            oldest, found, excluded = moment, found + 1, 0
            continue
        excluded += 1
        if excluded % SKIP_EXCLUSION_AFTER == 0:
            began = exclusion_start(timing.exclusions, timing.time_zone, moment, after=since)
            if began is None:
                break
            up_to = min(began, up_to)
    return oldest
