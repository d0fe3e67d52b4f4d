"""Cron text, checked and made ready: the walls it names, before any time zone comes in."""

from __future__ import annotations

import re
from copy import copy
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from trax.errors import DefinitionError, shown

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
SOME_WALL: Final = datetime(2024, 1, 1)  # noqa: DTZ001
SECOND: Final = timedelta(seconds=1)
RANGE: Final = re.compile(r"(\w+)-(\w+)(?:/(\d+))?", re.ASCII)
NEAREST_WEEKDAY: Final = re.compile(r"\d+W", re.IGNORECASE)


class Field(NamedTuple):
    """One field of an expression: its name, its ends, and the words that stand for its numbers."""

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
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31, also=", L, LW; the day must exist in one of the months"),
    Field("month", 1, 12, MONTHS, ", JAN-DEC"),
    Field("day-of-week", 0, 6, WEEKDAYS, ", SUN-SAT, 5L, MON#2"),
)


class Expression:
    """A cron expression that can be walked along, on walls, in both directions.

    It is wall-clock when it names its minutes and hours, as in Debian's cron: then it means times of the day,
    while a wildcard means a rhythm. The two differ when clocks are turned.
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
        return next(self._from(wall, direction=1), None)

    def wall_up_to(self, wall: datetime) -> datetime | None:
        """The last wall that matches, this one included."""
        return next(self._from(wall + SECOND, direction=-1), None)

    def matches(self, wall: datetime) -> bool:
        return self.wall_up_to(wall) == wall

    def _from(self, wall: datetime, direction: int) -> CronSim:
        """A copy, since parsing costs more than walking. Without a zone cronsim knows no daylight saving."""
        sim = copy(self._sim)
        sim.dt = wall.replace(microsecond=0, fold=0)
        sim.tick_direction = direction
        return sim


def in_fields(text: str) -> str:
    """The expression as it is kept: aliases written out, single spaces, otherwise as given."""
    plain = " ".join(text.split())
    return ALIASES.get(plain.lower(), plain)


@lru_cache(maxsize=4096)
def parsed(text: str) -> Expression:
    """The expression, or a DefinitionError that says which field is wrong."""
    if len(text) > LONGEST:
        raise _refused(text, f"{len(text)} characters are too many (at most {LONGEST})")
    parts = in_fields(text).split()
    if len(parts) not in (5, 6):
        raise _refused(text, _miscounted(len(parts)))
    fields = FIELDS[-len(parts) :]
    plain = " ".join(_plain(text, field, part) for field, part in zip(fields, parts, strict=True))
    try:
        expression = Expression(plain, CronSim(plain, SOME_WALL))
    except CronSimError as refusal:
        raise _refused(text, _blamed(str(refusal), dict(zip(fields, parts, strict=True)))) from None
    if expression.wall_after(SOME_WALL) is None:
        raise _refused(text, "that day never comes")
    return expression


def _miscounted(count: int) -> str:
    fields = "minute hour day-of-month month day-of-week"
    given = f"{count} field{'' if count == 1 else 's'} given"
    return f"{given}; it takes 5 ({fields}), 6 (second first), or one of {', '.join(ALIASES)}"


def _blamed(refusal: str, parts: dict[Field, str]) -> str:
    """Cronsim says `Bad hour`; a person wants to see the hour, and what it may be."""
    for field, part in parts.items():
        if refusal == f"Bad {field.name}":
            allowed = f"{field.first}-{field.last}, *, lists, ranges, steps{field.also}"
            return f"{field.name} {part!r} does not work (allowed: {allowed})"
    return refusal


def _plain(text: str, field: Field, part: str) -> str:
    return ",".join(_unwrapped(text, field, term) for term in part.split(","))


def _unwrapped(text: str, field: Field, term: str) -> str:
    """Ranges that run over the end, such as FRI-MON or 22-2, as the list that they mean."""
    if NEAREST_WEEKDAY.fullmatch(term):
        raise _refused(
            text, f"{term!r} (the weekday nearest to a date) is not supported; LW, the last weekday, is"
        )
    written = RANGE.fullmatch(term)
    if written is None:
        return term
    start, end, step = field.number(written[1]), field.number(written[2]), int(written[3] or 1)
    if start is not None and start == end and step:
        return written[1]  # or cronsim takes 5-5/2 for 5/2, which goes on to the end
    if start is None or end is None or start <= end or start > field.last or end < field.first or not step:
        return term
    numbers = [*range(start, field.last + 1), *range(field.first, end + 1)]
    return ",".join(str(number) for number in numbers[::step])


def _refused(text: str, reason: str) -> DefinitionError:
    return DefinitionError(f"cron expression {shown(text)}: {reason}")
