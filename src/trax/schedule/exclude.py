"""When a manifest must not run: `exclude.dates("2026-12-25")`, `exclude.time_window("22:00", "06:00")`."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time

from trax.errors import DefinitionError, InvalidArgument, format_value
from trax.records.schedule import Calendar, DateRange, Dates, DaysOfWeek, TimeWindow
from trax.schedule.cron import DAYS, day_number


def days_of_week(*days: int | str) -> DaysOfWeek:
    """Exclude days of the week: names such as `sat` or `saturday`, or numbers where Monday is 0."""
    if not days:
        raise DefinitionError('exclude.days_of_week needs a day, such as "sat"')
    return DaysOfWeek(tuple(sorted({_day(day) for day in days})))


def dates(*days: date | str) -> Dates:
    """Exclude whole dates, such as `"2026-12-25"`."""
    if not days:
        raise DefinitionError('exclude.dates needs a date, such as "2026-12-25"')
    return Dates(tuple(sorted({_date(day) for day in days})))


def date_range(start: date | str, end: date | str) -> DateRange:
    """Exclude all dates from `start` to `end`, both included."""
    first, last = _date(start), _date(end)
    if first > last:
        raise DefinitionError(f"exclude.date_range ends on {last}, before it starts on {first}")
    return DateRange(first, last)


def time_window(start: time | str, end: time | str) -> TimeWindow:
    """Exclude the time from `start` up to `end` every day; across midnight if `end` is the earlier one."""
    return TimeWindow(_time(start), _time(end))


def outside(calendar: Calendar) -> Calendar:
    """Exclude everything outside a calendar: the manifest runs only inside its windows."""
    if not isinstance(calendar, Calendar):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument("exclude.outside: calendar", "what app.calendar returns", calendar)
    return replace(calendar, only=True)


def _day(day: int | str) -> int:
    if isinstance(day, str):
        return day_number(day)
    if day not in range(len(DAYS)):
        raise DefinitionError(f"{format_value(day)} is not a day of the week (0 is Monday, 6 is Sunday)")
    return day


def _date(day: date | str) -> date:
    if isinstance(day, date) and not isinstance(day, datetime):
        return day
    try:
        return date.fromisoformat(day)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise DefinitionError(f'{format_value(day)} is not a date such as "2026-12-25"') from None


def _time(of_day: time | str) -> time:
    try:
        parsed = of_day if isinstance(of_day, time) else time.fromisoformat(of_day)
    except (TypeError, ValueError):
        raise DefinitionError(f'{format_value(of_day)} is not a time of day such as "22:00"') from None
    if parsed.tzinfo is not None:
        raise DefinitionError(
            f"{format_value(of_day)} has a time zone; remove it, exclusions use the time zone of the manifest"
        )
    return parsed
