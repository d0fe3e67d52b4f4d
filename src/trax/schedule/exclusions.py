"""Whether a manifest is kept from running, and when that ends. Any one exclusion is enough."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.records.when import Calendar, Exclusion
from trax.schedule.windows import covers, end_of, start_of
from trax.schedule.zones import end_of_gap, moments_of, repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

SECOND: Final = timedelta(seconds=1)
HORIZON: Final = timedelta(days=3653)
"""What stays excluded for ten years counts as excluded for ever."""


def is_excluded(exclusions: Sequence[Exclusion], zone: str, now: datetime) -> bool:
    if not exclusions:
        return False
    wall = wall_at(now, zone_named(zone))
    return any(_excludes(exclusion, wall) for exclusion in exclusions)


def first_allowed(exclusions: Sequence[Exclusion], zone: str, now: datetime) -> datetime | None:
    """The first moment from `now` on that nothing excludes, or None when there is none within ten years.

    Goes from end to end: whichever exclusion holds longest is asked when it ends, and there the question is
    put again.
    """
    if not exclusions:
        return now
    place, moment = zone_named(zone), now
    while moment < now + HORIZON:
        wall = wall_at(moment, place)
        holding = [exclusion for exclusion in exclusions if _excludes(exclusion, wall)]
        if not holding:
            return moment
        ends = [_end(exclusion, wall) for exclusion in holding]
        lasting = [end for end in ends if end is not None]
        if len(lasting) < len(ends):
            return None
        moment = _reached(max(lasting), wall, moment, place)
    return None


def exclusion_start(
    exclusions: Sequence[Exclusion], zone: str, now: datetime, after: datetime
) -> datetime | None:
    """Where the exclusion that holds `now` began, to the second; None when it did so before `after`.

    What `first_allowed` says of a moment in between tells on which side of it to look.
    """
    allowed, held = first_allowed(exclusions, zone, after), now
    if allowed is None or allowed >= now:
        return None
    while held - allowed > SECOND:
        middle = allowed + (held - allowed) / 2
        found = first_allowed(exclusions, zone, middle)
        if found is None or found >= now:
            held = middle
        else:
            allowed = found
    return held


def _excludes(exclusion: Exclusion, wall: datetime) -> bool:
    if isinstance(exclusion, Calendar):
        return any(covers(window, wall) for window in exclusion.windows) is not exclusion.only
    return covers(exclusion, wall)


def _end(exclusion: Exclusion, wall: datetime) -> datetime | None:
    """Up to which wall an exclusion that holds goes on holding, at least; None for ever."""
    if not isinstance(exclusion, Calendar):
        return end_of(exclusion, wall)
    if exclusion.only:
        starts = [start_of(window, wall) for window in exclusion.windows]
        return min((start for start in starts if start is not None), default=None)
    ends = [end_of(window, wall) for window in exclusion.windows if covers(window, wall)]
    return None if None in ends else max(end for end in ends if end is not None)


def _reached(end: datetime, wall: datetime, moment: datetime, zone: ZoneInfo) -> datetime:
    """The first moment from here on at which the clocks have come to `end`.

    Clocks that are about to be turned back may leave the exclusion that way, so the turn is looked at too.
    """
    repeat = repeat_around(wall, zone)
    shown_at = moments_of(end, zone) or (end_of_gap(end, zone),)
    reached = min(shown for shown in shown_at if shown > moment)
    return min(reached, repeat.turned_at) if repeat and not wall.fold else reached
