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
    planned, since = _planned(timing), counted_from(timing)
    pace = pace_of(timing, since or planned or now)
    if since is None:
        if planned is None:
            return Fire(now)
        since = planned - RESOLUTION
    due = planned or pace.next_after(since)
    return Wait(due) if due > now else _late(timing, pace, since, due, now)


def counted_from(timing: Timing) -> datetime | None:
    """Where the next occurrence is counted from: the last success, None before the first.

    Runs that overlap, and missed ones that are made up one by one, must each be for an occurrence of their
    own, so there it is the occurrence that was queued last.
    """
    if _counts_what_was_queued(timing) and timing.last_scheduled_for is not None:
        return timing.last_scheduled_for
    return timing.last_successful_run


def _planned(timing: Timing) -> datetime | None:
    """The moment set beforehand, unless it has been queued already and the next may come."""
    planned, queued = timing.next_scheduled_run, timing.last_scheduled_for
    if _counts_what_was_queued(timing) and planned is not None and queued is not None and planned <= queued:
        return None
    return planned


def _counts_what_was_queued(timing: Timing) -> bool:
    return timing.max_instances > 1 or timing.misfire.policy is MisfirePolicy.FIRE_ALL


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
