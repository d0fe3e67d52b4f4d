"""When cron itself would run a line, by its own rules. Ours are not asked: they are held to this."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from trax.errors import DefinitionError, shown
from trax.schedule.zones import end_of_gap, moments_of, wall_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

DAY: Final = timedelta(days=1)
LOOKED_AHEAD: Final = 60 * 366
"""In days: ten times the 29th of February takes forty years, or more."""


class Field(NamedTuple):
    """A field of a crontab: its ends, and the words for its numbers."""

    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()

    def numbers(self, text: str) -> frozenset[int]:
        """Those that a text of cron's stands for; DefinitionError for what cron would not understand."""
        return frozenset(number for part in text.split(",") for number in self._range(part))

    def _range(self, part: str) -> range:
        numbers, slash, step = part.partition("/")
        by = int(step) if step.isdecimal() else 0 if slash else 1
        if by < 1:
            raise self._refused(part)
        if numbers == "*":
            return range(self.first, self.last + 1, by)
        start, dash, end = numbers.partition("-")
        low = self._number(start, part)
        high = self._number(end, part) if dash else self.last if slash else low
        if high < low:
            raise self._refused(part)
        return range(low, high + 1, by)

    def _number(self, text: str, part: str) -> int:
        word = text[:3].lower()
        if word in self.words:
            return self.words.index(word) + self.first
        if not text.isdecimal() or not self.first <= int(text) <= self.last:
            raise self._refused(part)
        return int(text)

    def _refused(self, part: str) -> DefinitionError:
        return DefinitionError(f"{self.name} {shown(part)} is not understood")


MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS: Final = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day of the week", 0, 7, WEEKDAYS),
)


def short(text: str) -> str:
    """Names of days and months, cut to the three letters that every cron knows."""
    return re.sub(r"([A-Za-z]{3})[A-Za-z]*", r"\1", text)


def numbers_if_any(field: Field, text: str) -> frozenset[int]:
    """None for what only we can write, such as L and MON#2."""
    try:
        return field.numbers(text)
    except DefinitionError:
        return frozenset()


@dataclass(frozen=True, slots=True)
class Line:
    """The five fields of a line, as the numbers they stand for."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    is_rhythm: bool

    @classmethod
    def read(cls, fields: Sequence[str]) -> Self:
        """A star in front makes a day field step back; a star in minute or hour makes the line a rhythm."""
        minute, hour, day, _, weekday = fields
        numbers = [field.numbers(text) for field, text in zip(FIELDS, fields, strict=True)]
        return cls(
            *numbers,
            both_days=day.startswith("*") or weekday.startswith("*"),
            is_rhythm=minute.startswith("*") or hour.startswith("*"),
        )

    def runs_on(self, day: date) -> bool:
        """With both days restricted one of them is enough."""
        of_month = day.day in self.days
        of_week = not self.weekdays.isdisjoint({day.isoweekday(), day.isoweekday() % 7})
        fits = of_month and of_week if self.both_days else of_month or of_week
        return fits and day.month in self.months

    def next(self, zone: ZoneInfo, after: datetime, count: int) -> tuple[datetime, ...]:
        return tuple(islice((moment for moment in self._moments(zone, after) if moment > after), count))

    def _moments(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        today = wall_at(after, zone).date()
        days = (today + number * DAY for number in range(LOOKED_AHEAD))
        for day in filter(self.runs_on, days):
            yield from sorted({moment for wall in self._walls(day) for moment in self._runs(wall, zone)})

    def _walls(self, day: date) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                yield datetime.combine(day, time(hour, minute))

    def _runs(self, wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
        """A fixed time that the clocks jump over runs after the jump, one shown twice runs once."""
        moments = moments_of(wall, zone)
        if self.is_rhythm:
            return moments
        return moments[:1] or (end_of_gap(wall, zone),)
