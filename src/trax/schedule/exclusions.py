"""Evaluate exclusions: whether a manifest is excluded now, and until when. Any one is enough."""

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
"""Excluded for ten years counts as excluded forever."""


def is_excluded(exclusions: Sequence[Exclusion], zone: str, now: datetime) -> bool:
    if not exclusions:
        return False
    wall = wall_at(now, zone_named(zone))
    return any(_excludes(exclusion, wall) for exclusion in exclusions)


def first_allowed(exclusions: Sequence[Exclusion], zone: str, now: datetime) -> datetime | None:
    """The first moment from `now` on that no exclusion covers, or None when there is none within ten years.

    Jumps to the end of the longest exclusion that applies, and checks again there.
    """
    if not exclusions:
        return now
    time_zone, moment = zone_named(zone), now
    while moment < now + HORIZON:
        wall = wall_at(moment, time_zone)
        active = [exclusion for exclusion in exclusions if _excludes(exclusion, wall)]
        if not active:
            return moment
        ends = [_exclusion_end(exclusion, wall) for exclusion in active]
        finite_ends = [end for end in ends if end is not None]
        if len(finite_ends) < len(ends):
            return None
        moment = _first_moment_showing(max(finite_ends), wall, moment, time_zone)
    return None


def exclusion_start(
    exclusions: Sequence[Exclusion], zone: str, now: datetime, after: datetime
) -> datetime | None:
    """The start of the exclusion that covers `now`, to the second; None when it began before `after`.

    A binary search with `first_allowed`.
    """
    allowed, excluded = first_allowed(exclusions, zone, after), now
    if allowed is None or allowed >= now:
        return None
    while excluded - allowed > SECOND:
        middle = allowed + (excluded - allowed) / 2
        next_allowed = first_allowed(exclusions, zone, middle)
        if next_allowed is None or next_allowed >= now:
            excluded = middle
        else:
            allowed = next_allowed
    return excluded


def _excludes(exclusion: Exclusion, wall: datetime) -> bool:
    if isinstance(exclusion, Calendar):
        return any(covers(window, wall) for window in exclusion.windows) is not exclusion.only
    return covers(exclusion, wall)


def _exclusion_end(exclusion: Exclusion, wall: datetime) -> datetime | None:
    """The wall-clock time until which an active exclusion applies at least; None: forever."""
    if not isinstance(exclusion, Calendar):
        return end_of(exclusion, wall)
    if exclusion.only:
        starts = [start_of(window, wall) for window in exclusion.windows]
        return min((start for start in starts if start is not None), default=None)
    ends = [end_of(window, wall) for window in exclusion.windows if covers(window, wall)]
    return None if None in ends else max(end for end in ends if end is not None)


def _first_moment_showing(end: datetime, wall: datetime, moment: datetime, zone: ZoneInfo) -> datetime:
    """The first moment after `moment` at which the wall clock shows `end`.

    A clock that is set back may leave the exclusion that way, so the moment of the change is considered too.
    """
    repeat = repeat_around(wall, zone)
    candidates = moments_of(end, zone) or (end_of_gap(end, zone),)
    first = min(candidate for candidate in candidates if candidate > moment)
    return min(first, repeat.turned_at) if repeat and not wall.fold else first
