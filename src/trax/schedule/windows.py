"""Exclusion windows in wall-clock time: whether one covers a time, when it ends, when it next starts."""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from trax.records.when import DateRange, Dates, DaysOfWeek, TimeWindow, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = timedelta(days=1)
WEEK = range(1, 8)


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
