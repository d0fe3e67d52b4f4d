"""Parse and evaluate cron expressions in wall-clock time, without a time zone."""

from __future__ import annotations

import re
from copy import copy
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from trax.errors import DefinitionError, format_value

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
LONGEST: Final = 1000
REFERENCE_TIME: Final = datetime(2024, 1, 1)  # noqa: DTZ001
SECOND: Final = timedelta(seconds=1)
RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/(\d+))?", re.ASCII)
NEAREST_WEEKDAY: Final = re.compile(r"\d+W", re.IGNORECASE)


class CronField(NamedTuple):
    """One field of a cron expression: its name, its range, and the names of its values such as MON."""

    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()
    also: str = ""

    def number(self, text: str) -> int | None:
        if text.upper() in self.words:
            return self.words.index(text.upper()) + self.first
        return int(text) if text.isdecimal() and text.isascii() else None


FIELDS: Final = (
    CronField("second", 0, 59),
    CronField("minute", 0, 59),
    CronField("hour", 0, 23),
    CronField("day-of-month", 1, 31, also=", L, LW; the day must exist in one of the months"),
    CronField("month", 1, 12, MONTHS, ", JAN-DEC"),
    CronField("day-of-week", 0, 6, WEEKDAYS, ", SUN-SAT, 5L, MON#2"),
)


class Expression:
    """A parsed cron expression that finds matching wall-clock times in both directions.

    `is_wall_clock` as in Debian's cron: an expression with fixed minutes and hours means times of the day,
    one with wildcards means a rate. The two differ when the clock changes.
    """

    def __init__(self, text: str, sim: CronSim) -> None:
        minute, hour = text.split()[-5:-3]
        self.text = text
        self.runs_every_hour = len(sim.hours) == FIELDS[2].last + 1
        runs_every_minute = len(sim.minutes) == FIELDS[1].last + 1
        self.is_wall_clock = not (
            minute.startswith("*") or hour.startswith("*") or self.runs_every_hour or runs_every_minute
        )
        self._sim = sim

    def wall_after(self, wall: datetime) -> datetime | None:
        return next(self._simulate_from(wall, direction=1), None)

    def wall_up_to(self, wall: datetime) -> datetime | None:
        """The last matching wall-clock time up to this one, inclusive."""
        return next(self._simulate_from(wall + SECOND, direction=-1), None)

    def matches(self, wall: datetime) -> bool:
        return self.wall_up_to(wall) == wall

    def _simulate_from(self, wall: datetime, direction: int) -> CronSim:
        """A copy: parsing is slower than iterating. Without a time zone cronsim ignores daylight saving."""
        sim = copy(self._sim)
        sim.dt = wall.replace(microsecond=0, fold=0)
        sim.tick_direction = direction
        return sim


def normalize_expression(text: str) -> str:
    """The expression as it is stored: aliases expanded, single spaces."""
    plain = " ".join(text.split())
    return ALIASES.get(plain.lower(), plain)


@lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Parse a cron expression. Raises DefinitionError naming the invalid field."""
    if len(text) > LONGEST:
        raise _expression_error(text, f"it has {len(text)} characters, at most {LONGEST} are allowed")
    parts = normalize_expression(text).split()
    if len(parts) not in (5, 6):
        raise _expression_error(text, _field_count_message(len(parts)))
    fields = FIELDS[-len(parts) :]
    plain = " ".join(_expand_field(text, field, part) for field, part in zip(fields, parts, strict=True))
    try:
        expression = Expression(plain, CronSim(plain, REFERENCE_TIME))
    except CronSimError as error:
        raise _expression_error(
            text, _field_message(str(error), dict(zip(fields, parts, strict=True)))
        ) from None
    if expression.wall_after(REFERENCE_TIME) is None:
        raise _expression_error(text, "no date matches it")
    return expression


def _field_count_message(count: int) -> str:
    fields = "minute hour day-of-month month day-of-week"
    found = f"{count} field{'' if count == 1 else 's'} found"
    return f"{found}; expected 5 ({fields}), 6 (second first), or one of {', '.join(ALIASES)}"


def _field_message(refusal: str, parts: dict[CronField, str]) -> str:
    """Replace cronsim's `Bad hour` by the value of the field and what is allowed."""
    for field, part in parts.items():
        if refusal == f"Bad {field.name}":
            allowed = f"{field.first}-{field.last}, *, lists, ranges, steps{field.also}"
            return f"{field.name} {part!r} is invalid (allowed: {allowed})"
    return refusal


def _expand_field(text: str, field: CronField, part: str) -> str:
    return ",".join(_expand_range(text, field, term) for term in part.split(","))


def _expand_range(text: str, field: CronField, term: str) -> str:
    """Expand a range that wraps around, such as FRI-MON or 22-2, into a list."""
    if NEAREST_WEEKDAY.fullmatch(term):
        raise _expression_error(
            text, f"{term!r} (the weekday nearest to a date) is not supported; LW, the last weekday, is"
        )
    match = RANGE.fullmatch(term)
    if match is None:
        return term
    start, end, step = field.number(match[1]), field.number(match[2]), int(match[3] or 1)
    if start is not None and start == end and step:
        return match[1]  # cronsim reads 5-5/2 as 5/2, which continues to the end of the range
    if start is None or end is None or start <= end or start > field.last or end < field.first or not step:
        return term
    numbers = [*range(start, field.last + 1), *range(field.first, end + 1)]
    return ",".join(str(number) for number in numbers[::step])


def _expression_error(text: str, reason: str) -> DefinitionError:
    return DefinitionError(f"cron expression {format_value(text)}: {reason}")
