"""Decide whether an interval or cron schedule is due, and which missed occurrences to run.

Exclusions are applied here only to missed occurrences; `due` applies them to the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.records.states import MisfirePolicy
from trax.schedule.answers import DueStatus, Fire, Wait
from trax.schedule.exclusions import exclusion_start, is_excluded
from trax.schedule.misfire import MAX_CATCH_UP
from trax.schedule.pace import RESOLUTION, schedule_moments

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.when import Timing
    from trax.schedule.pace import ScheduleMoments

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
