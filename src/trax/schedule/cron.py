"""Schedules by the clock on the wall: cron expressions, and helpers that write the common ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.errors import DefinitionError, shown
from trax.records.when import Cron
from trax.schedule.days import DAYS, day_number
from trax.schedule.expression import in_fields, parsed
from trax.schedule.variance import variance_seconds
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from datetime import timedelta


class CronWriter:
    """`cron("0 7 * * mon-fri")`, and `cron.daily(hour=7)` for those who do not want to count fields."""

    def __call__(self, text: str, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """At the moments of an expression with five fields, or six with seconds first."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"a cron expression is text such as '0 7 * * mon-fri' (got {shown(text)})")
        parsed(text)
        zone_named(tz)
        return Cron(in_fields(text), time_zone=tz, variance_seconds=variance_seconds(variance))

    def secondly(self, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Every second."""
        return self("* * * * * *", tz, variance)

    def minutely(self, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Once a minute."""
        return self(_at(second, "* * * * *"), tz, variance)

    def hourly(
        self, minute: int = 0, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None
    ) -> Cron:
        """Once an hour."""
        return self(_at(second, f"{minute} * * * *"), tz, variance)

    def daily(
        self,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """Once a day."""
        return self(_at(second, f"{minute} {hour} * * *"), tz, variance)

    def weekly(
        self,
        day: int | str,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """On one day of the week: a name, or a number as cron counts, Sunday is 0."""
        return self(_at(second, f"{minute} {hour} * * {_weekday(day)}"), tz, variance)

    def monthly(
        self,
        day: int = 1,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """On one day of the month."""
        return self(_at(second, f"{minute} {hour} {day} * *"), tz, variance)


cron: Final = CronWriter()


def _at(second: int, fields: str) -> str:
    return fields if second == 0 else f"{second} {fields}"


def _weekday(day: int | str) -> int:
    """Cron's week begins one day before Python's."""
    return (day_number(day) + 1) % len(DAYS) if isinstance(day, str) else day
