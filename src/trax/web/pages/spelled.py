"""Parse typed durations and numbers, and describe exclusions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from trax.bounds import LONGEST_DURATION
from trax.errors import TraxError, format_value
from trax.records.when import Calendar, DateRange, Dates, DaysOfWeek, Exclusion, TimeWindow

DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
SECONDS: Final = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
DAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
SHOWN_DATES: Final = 8
LONGEST_NUMBER: Final = 18


def duration(name: str, text: str) -> timedelta | None:
    """Parse `90`, `5m`, `2h` or `1d`; None for an empty text."""
    if not text:
        return None
    match = DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * SECONDS[match[2] or "s"] if match else 0.0
    if match is None or seconds > LONGEST_DURATION.total_seconds():
        raise TraxError(f"{name}: invalid duration {format_value(text)}; write 90, 5m, 2h or 1d")
    return timedelta(seconds=seconds)


def whole_number(name: str, text: str) -> int | None:
    """Parse a whole number, 0 or more; None for an empty text."""
    number = parse_whole(text)
    if text and number is None:
        raise TraxError(f"{name}: {format_value(text)} is not a whole number of 0 or more")
    return number


def parse_whole(text: str) -> int | None:
    """Parse a whole number; None if it is not one, or has too many digits for an id."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER
    return int(text) if is_number else None


def describe_exclusion(exclusion: Exclusion) -> str:
    """Describe an exclusion in one line."""
    match exclusion:
        case DaysOfWeek(days):
            return "on " + _join_words([DAYS[day] for day in sorted(days)])
        case Dates(dates):
            texts = [f"{date:%Y-%m-%d}" for date in sorted(dates)]
            more = len(texts) - SHOWN_DATES
            return "on " + _join_words([*texts[:SHOWN_DATES], *([f"{more} more dates"] if more > 0 else [])])
        case DateRange(start, end):
            return f"from {start:%Y-%m-%d} to {end:%Y-%m-%d}"
        case TimeWindow(start, end):
            return f"from {start:%H:%M} to {end:%H:%M}"
        case Calendar(name, windows, only):
            inside = "; ".join(map(describe_exclusion, windows))
            return f"{'outside' if only else 'within'} the calendar {name} ({inside})"


def _join_words(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
