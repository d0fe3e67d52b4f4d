"""What people type and read for lengths of time, numbers and the times when nothing runs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from trax.bounds import LONGEST
from trax.errors import TraxError, shown
from trax.records.when import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow

LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
DAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
SHOWN_DATES: Final = 8
LONGEST_NUMBER: Final = 18


def duration(name: str, text: str) -> timedelta | None:
    """`90`, `5m`, `2h`, `1d`; nothing for nothing."""
    if not text:
        return None
    found = LENGTH.fullmatch(text.strip().lower())
    seconds = float(found[1]) * SECONDS[found[2] or "s"] if found else 0.0
    if found is None or seconds > LONGEST.total_seconds():
        raise TraxError(f"{name}: {shown(text)} is no length of time; write 90, 5m, 2h or 1d")
    return timedelta(seconds=seconds)


def whole_number(name: str, text: str) -> int | None:
    """A whole number, 0 or more; nothing for nothing."""
    number = whole(text)
    if text and number is None:
        raise TraxError(f"{name}: {shown(text)} is not a whole number, 0 or more")
    return number


def whole(text: str) -> int | None:
    """The same, if it is one and a row could have it; Python would refuse to read much longer ones."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) if is_one else None


def excluded(exclusion: Exclusion) -> str:
    """When a manifest does not run, as one line."""
    match exclusion:
        case DaysOfWeek(days):
            return "on " + _listed([DAYS[day] for day in sorted(days)])
        case Dates(dates):
            shown_ones = [f"{date:%Y-%m-%d}" for date in sorted(dates)]
            more = len(shown_ones) - SHOWN_DATES
            return "on " + _listed([*shown_ones[:SHOWN_DATES], *([f"{more} more dates"] if more > 0 else [])])
        case DateRange(start, end):
            return f"from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
        case TimeWindow(start, end):
            return f"from {start:%H:%M} to {end:%H:%M}"
        case Calendar(name, windows, only):
            inside = "; ".join(map(excluded, windows))
            return f"{'outside' if only else 'within'} the calendar {name} ({inside})"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
