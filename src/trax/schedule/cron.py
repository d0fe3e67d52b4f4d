"""Cron schedules: `cron("0 7 * * mon-fri")`, and helpers such as `cron.daily(hour=7)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.errors import DefinitionError, format_value
from trax.records.when import Cron
from trax.schedule.days import DAYS, day_number
from trax.schedule.expression import normalize_expression, parse_expression
from trax.schedule.variance import variance_seconds
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from datetime import timedelta


class CronWriter:
    """Builds cron schedules: `cron("0 7 * * mon-fri")`, or without an expression `cron.daily(hour=7)`."""

    def __call__(self, text: str, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run at the times of a cron expression with five fields, or six with seconds first."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"cron needs an expression such as '0 7 * * mon-fri' (got {format_value(text)})"
            )
        parse_expression(text)
        zone_named(tz)
        return Cron(normalize_expression(text), time_zone=tz, variance_seconds=variance_seconds(variance))

    def secondly(self, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run every second."""
        return self("* * * * * *", tz, variance)

    def minutely(self, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None) -> Cron:
        """Run once a minute, at `second`."""
        return self(_with_second(second, "* * * * *"), tz, variance)

    def hourly(
        self, minute: int = 0, second: int = 0, *, tz: str = "UTC", variance: timedelta | None = None
    ) -> Cron:
        """Run once an hour, at `minute` and `second`."""
        return self(_with_second(second, f"{minute} * * * *"), tz, variance)

    def daily(
        self,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        *,
        tz: str = "UTC",
        variance: timedelta | None = None,
    ) -> Cron:
        """Run once a day, at the given time."""
        return self(_with_second(second, f"{minute} {hour} * * *"), tz, variance)

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
        """Run once a week, on `day`: a name such as `mon`, or a cron number where Sunday is 0."""
        return self(_with_second(second, f"{minute} {hour} * * {_weekday(day)}"), tz, variance)

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
        """Run once a month, on this day of the month."""
        return self(_with_second(second, f"{minute} {hour} {day} * *"), tz, variance)


cron: Final = CronWriter()


def _with_second(second: int, fields: str) -> str:
    return fields if second == 0 else f"{second} {fields}"


def _weekday(day: int | str) -> int:
    """The cron number of a day: cron counts from Sunday, Python from Monday."""
    return (day_number(day) + 1) % len(DAYS) if isinstance(day, str) else day
