"""When cron would run a line, by cron's own rules, to compare Trax with; and cron with two day fields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from trax.errors import DefinitionError, format_value
from trax.schedule import exclude
from trax.schedule.cron import DAYS, cron
from trax.schedule.zones import end_of_gap, moments_of, wall_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from zoneinfo import ZoneInfo

    from trax.records.schedule import Cron


DAY: Final = timedelta(days=1)
MAX_DAYS_AHEAD: Final = 60 * 366
"""In days: ten runs on February 29 span forty years or more."""


class CrontabField(NamedTuple):
    """A field of a crontab: its range, and the names of its numbers."""

    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()

    def numbers(self, text: str) -> frozenset[int]:
        """The numbers that a field text matches; DefinitionError if cron would reject it."""
        return frozenset(number for part in text.split(",") for number in self._range(part))

    def _range(self, part: str) -> range:
        numbers, slash, step = part.partition("/")
        by = int(step) if step.isdecimal() else 0 if slash else 1
        if by < 1:
            raise self._error(part)
        if numbers == "*":
            return range(self.first, self.last + 1, by)
        start, dash, end = numbers.partition("-")
        low = self._number(start, part)
        high = self._number(end, part) if dash else self.last if slash else low
        if high < low:
            raise self._error(part)
        return range(low, high + 1, by)

    def _number(self, text: str, part: str) -> int:
        word = text[:3].lower()
        if word in self.words:
            return self.words.index(word) + self.first
        if not text.isdecimal() or not self.first <= int(text) <= self.last:
            raise self._error(part)
        return int(text)

    def _error(self, part: str) -> DefinitionError:
        return DefinitionError(f"invalid {self.name} {format_value(part)}")


MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS: Final = (
    CrontabField("minute", 0, 59),
    CrontabField("hour", 0, 23),
    CrontabField("day of the month", 1, 31),
    CrontabField("month", 1, 12, MONTHS),
    CrontabField("day of the week", 0, 7, WEEKDAYS),
)


def shorten_names(text: str) -> str:
    """Cut names of days and months to three letters, which every cron accepts."""
    return re.sub(r"([A-Za-z]{3})[A-Za-z]*", r"\1", text)


def numbers_or_empty(field: CrontabField, text: str) -> frozenset[int]:
    """The numbers of a field; empty for syntax beyond cron, such as L and MON#2."""
    try:
        return field.numbers(text)
    except DefinitionError:
        return frozenset()


@dataclass(frozen=True, slots=True)
class CrontabLine:
    """The five fields of a line, as numbers."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    is_periodic: bool

    @classmethod
    def read(cls, fields: Sequence[str]) -> Self:
        """Parse the five fields.

        A day field that begins with a star requires both days to match. A star in minute or hour makes the
        line periodic, which matters when clocks change.
        """
        minute, hour, day, _, weekday = fields
        numbers = [field.numbers(text) for field, text in zip(FIELDS, fields, strict=True)]
        return cls(
            *numbers,
            both_days=day.startswith("*") or weekday.startswith("*"),
            is_periodic=minute.startswith("*") or hour.startswith("*"),
        )

    def runs_on(self, day: date) -> bool:
        """Whether it runs on this day. If both day fields are restricted, one match is enough."""
        of_month = day.day in self.days
        of_week = not self.weekdays.isdisjoint({day.isoweekday(), day.isoweekday() % 7})
        fits = of_month and of_week if self.both_days else of_month or of_week
        return fits and day.month in self.months

    def next(self, zone: ZoneInfo, after: datetime, count: int) -> tuple[datetime, ...]:
        return tuple(islice((moment for moment in self._moments(zone, after) if moment > after), count))

    def _moments(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        today = wall_at(after, zone).date()
        days = (today + number * DAY for number in range(MAX_DAYS_AHEAD))
        for day in filter(self.runs_on, days):
            yield from sorted({moment for wall in self._walls(day) for moment in self._runs(wall, zone)})

    def _walls(self, day: date) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                yield datetime.combine(day, time(hour, minute))

    def _runs(self, wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
        """A fixed time skipped by a clock change runs after it; one that occurs twice runs once."""
        moments = moments_of(wall, zone)
        if self.is_periodic:
            return moments
        return moments[:1] or (end_of_gap(wall, zone),)


DAY_FIELD, WEEKDAY = -3, -1
ON_DAY_ONE: Final = "*/31"
SUNDAY: Final = "*/8"
"""A day field that begins with a star makes cron require both days; this step matches only the first day."""
SHORT_THRESHOLD: Final = timedelta(seconds=30)
"""Below a minute: else a run in the last minute of an excluded day would be caught up at midnight."""


def cron_for_both_days(fields: Sequence[str], tz: str) -> tuple[Cron, dict[str, Any], tuple[str, ...]]:
    """The schedule, the options it needs, and remarks."""
    day, weekday = fields[DAY_FIELD], fields[WEEKDAY]
    if day.startswith("*") or weekday.startswith("*"):
        return cron(" ".join(fields), tz=tz), {}, ()
    remark = f"day {day} and {weekday} must both match, while cron runs on either"
    of_month = numbers_or_empty(FIELDS[DAY_FIELD], day)
    of_week = numbers_or_empty(FIELDS[WEEKDAY], weekday)
    if 1 in of_month:
        return (
            cron(_replace_field(fields, DAY_FIELD, f"{ON_DAY_ONE},{day}"), tz=tz),
            {},
            (f"{remark}: the star requires both",),
        )
    if {0, 7} & of_week:
        starred = f"{SUNDAY},{weekday}"
        return (
            cron(_replace_field(fields, WEEKDAY, starred), tz=tz),
            {},
            (f"{remark}: the star requires both",),
        )
    if not of_week:
        raise DefinitionError(f"{remark}, and {weekday} is not a plain list of days")
    others = [name[:3] for name in DAYS if WEEKDAYS.index(name[:3]) not in of_week]
    options = {
        "exclude": exclude.days_of_week(*others),
        "on_misfire": "do_nothing",
        "misfire_threshold": SHORT_THRESHOLD,
    }
    why = f"{remark}: the other weekdays are excluded, so missed runs are not caught up"
    return cron(_replace_field(fields, WEEKDAY, "*"), tz=tz), options, (why,)


def _replace_field(fields: Sequence[str], position: int, text: str) -> str:
    changed = list(fields)
    changed[position] = text
    return " ".join(changed)
