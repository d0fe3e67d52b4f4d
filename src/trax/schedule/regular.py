"""Whether an interval or a cron schedule is due, and what of what was missed is made up.

Exclusions count here only for what was missed: whether it is excluded now is asked of the answer, in `due`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.records.states import MisfirePolicy
from trax.schedule.answers import Answer, Fire, Wait
from trax.schedule.exclusions import exclusion_start, is_excluded
from trax.schedule.misfire import MOST_MADE_UP
from trax.schedule.pace import RESOLUTION, pace_of

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.when import Timing
    from trax.schedule.pace import Pace

LEAP_AFTER: Final = 20
"""So many excluded occurrences in a row cost as much as to find where the exclusion began."""


def look_at_regular(timing: Timing, now: datetime) -> Answer:
    """What has never succeeded is due at once, unless a first moment was set beforehand."""
    queued, planned = _queued_before(timing), _planned(timing)
    if queued is not None and planned is not None and planned <= queued:
        planned = None  # it has been queued already, and the next may come
    since = queued or timing.last_successful_run
    pace = pace_of(timing, since or planned or now)
    if since is None:
        if planned is None:
            return Fire(now)
        since = planned - RESOLUTION
    due = planned or pace.next_after(since)
    return Wait(due) if due > now else _late(timing, pace, since, due, now)


def _planned(timing: Timing) -> datetime | None:
    """The moment set beforehand; else the one that whoever wrote `plan_after` could not tell."""
    after = timing.plan_after
    if timing.next_scheduled_run is not None or after is None:
        return timing.next_scheduled_run
    return pace_of(timing, anchor=after).next_after(after)


def counted_from(timing: Timing) -> datetime | None:
    """Where the next occurrence is counted from: the last success, None before the first."""
    return _queued_before(timing) or timing.last_successful_run


def _queued_before(timing: Timing) -> datetime | None:
    """The occurrence that was queued last, where the next is counted from it and not from a success.

    Runs that overlap, and missed ones that are made up one by one, must each be for an occurrence of their
    own.
    """
    counts = timing.max_instances > 1 or timing.misfire.policy is MisfirePolicy.FIRE_ALL
    return timing.last_scheduled_for if counts else None


def _late(timing: Timing, pace: Pace, since: datetime, due: datetime, now: datetime) -> Answer:
    """It was due; the policy says what that means by now."""
    misfire = timing.misfire
    if misfire.policy is MisfirePolicy.FIRE_ALL:
        missed = _oldest_missed(timing, pace, since, now)
        return Fire(missed) if missed else Wait(pace.next_after(now))
    latest = max(due, pace.latest(up_to=now, after=since) or due)
    if misfire.policy is MisfirePolicy.DO_NOTHING and now - latest > misfire.threshold:
        return Wait(pace.next_after(now))
    return Fire(latest)


def _oldest_missed(timing: Timing, pace: Pace, since: datetime, now: datetime) -> datetime | None:
    """Of the latest occurrences to make up, the oldest. One that was excluded was not missed.

    Walks back over no more than `MOST_MADE_UP` occurrences, and leaps over a long exclusion.
    """
    limit = timing.misfire.limit or MOST_MADE_UP
    if not timing.exclusions:
        return pace.oldest_of(limit, up_to=now, after=since)
    oldest, found, excluded, up_to = None, 0, 0, now
    for _ in range(MOST_MADE_UP):
        moment = pace.latest(up_to, after=since)
        if moment is None or found == limit:
            break
        up_to = moment - RESOLUTION
        if not is_excluded(timing.exclusions, timing.time_zone, moment):
            oldest, found, excluded = moment, found + 1, 0
            continue
        excluded += 1
        if excluded % LEAP_AFTER == 0:
            began = exclusion_start(timing.exclusions, timing.time_zone, moment, after=since)
            if began is None:
                break
            up_to = min(began, up_to)
    return oldest
