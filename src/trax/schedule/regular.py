"""Is an interval or a cron schedule due, and what of what was missed? Exclusions are not known here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.records.states import MisfirePolicy
from trax.schedule.answers import Answer, Fire, Wait
from trax.schedule.misfire import MOST_MADE_UP
from trax.schedule.pace import RESOLUTION, pace_of

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records.when import Timing
    from trax.schedule.pace import Pace


def look_at_regular(timing: Timing, now: datetime) -> Answer:
    """What has never succeeded is due at once, unless a first moment was set beforehand."""
    queued, planned = _queued_before(timing), timing.next_scheduled_run
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
        missed = pace.oldest_of(misfire.limit or MOST_MADE_UP, up_to=now, after=since)
        return Fire(missed) if missed else Wait(pace.next_after(since))
    latest = max(due, pace.latest(up_to=now, after=since) or due)
    if misfire.policy is MisfirePolicy.DO_NOTHING and now - latest > misfire.threshold:
        return Wait(pace.next_after(now))
    return Fire(latest)
