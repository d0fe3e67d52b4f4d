"""Whether a manifest is excluded at a moment, and until when; exclusion windows are in wall-clock time."""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from trax.records.schedule import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow, Window
from trax.schedule.zones import end_of_gap, moments_of, repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo


DAY = timedelta(days=1)

WEEK = range(1, 8)


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


def covers(window: Window, wall: datetime) -> bool:
    match window:
        case DaysOfWeek(days):
            return wall.weekday() in days
        case Dates(dates):
            return wall.date() in dates
        case DateRange(start, end):
            return start <= wall.date() <= end
        case TimeWindow(start, end) if start <= end:
            return start <= wall.time() < end
        case TimeWindow(start, end):
            return wall.time() >= start or wall.time() < end


def end_of(window: Window, wall: datetime) -> datetime | None:
    """When a window that covers this time ends; None: never."""
    match window:
        case DaysOfWeek(days):
            return _midnight_in(wall, (n for n in WEEK if (wall.weekday() + n) % 7 not in days))
        case Dates():
            return _midnight_after(wall.date())
        case DateRange(_, end):
            return _midnight_after(end)
        case TimeWindow(_, end):
            return _next(end, wall)


def start_of(window: Window, wall: datetime) -> datetime | None:
    """When a window that does not cover this time starts next; None: never."""
    match window:
        case DaysOfWeek(days):
            return _midnight_in(wall, (n for n in WEEK if (wall.weekday() + n) % 7 in days))
        case Dates(dates):
            return _midnight(min((each for each in dates if each > wall.date()), default=None))
        case DateRange(start, end):
            return _midnight(start) if wall.date() < start <= end else None
        case TimeWindow(start, end):
            return None if start == end else _next(start, wall)


def _midnight_in(wall: datetime, days: Iterator[int]) -> datetime | None:
    ahead = next(days, None)
    return None if ahead is None else _midnight(wall.date() + ahead * DAY)


def _midnight_after(day: date) -> datetime | None:
    return None if day.year == MAXYEAR else _midnight(day + DAY)


def _midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time())


def _next(of_day: time, wall: datetime) -> datetime:
    today = datetime.combine(wall.date(), of_day)
    return today if today > wall else today + DAY
