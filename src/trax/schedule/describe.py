"""Format schedules for display: in words, and as the nearest cron expression."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from cronsim import CronSim

from trax.errors import DefinitionError
from trax.records.when import Cron, Interval, Schedule
from trax.schedule.expression import REFERENCE_TIME, parse_expression

UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
STEPS: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
"""The divisors of 60: cron steps that divide a minute or an hour evenly."""


def explain(schedule: Schedule) -> str:
    """`every 5 minutes`, `At 07:00 on Monday through Friday (Europe/Berlin)`."""
    words = _interval_in_words(schedule) if isinstance(schedule, Interval) else _cron_in_words(schedule)
    variance = schedule.variance_seconds
    return f"{words}, up to {_duration(variance)} later" if variance else words


def to_cron_expression(schedule: Schedule | None) -> str:
    """The nearest cron expression; exact for cron and for intervals that divide an hour or a day."""
    if schedule is None:
        return "* * * * *"
    if isinstance(schedule, Cron):
        return schedule.expression
    if schedule.seconds < 60:  # noqa: PLR2004
        return _every(_nearest_step(schedule.seconds), "* * * * *")
    return _in_minutes(schedule.seconds // 60)


def _interval_in_words(interval: Interval) -> str:
    duration = _duration(interval.seconds).removeprefix("1 ")
    return f"every {duration}, at a fixed rate" if interval.anchored else f"every {duration}"


def _duration(seconds: int) -> str:
    """A duration in the largest unit that needs no fraction: `90 minutes`."""
    unit, size = next(((unit, size) for unit, size in UNITS if seconds % size == 0), UNITS[-1])
    count = seconds // size
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _cron_in_words(cron: Cron) -> str:
    try:
        text = CronSim(parse_expression(cron.expression).text, REFERENCE_TIME).explain()
    except DefinitionError:
        return f"{cron.expression} (invalid)"
    return text if cron.time_zone == "UTC" else f"{text} ({cron.time_zone})"


def _in_minutes(minutes: int) -> str:
    if minutes == 60:  # noqa: PLR2004
        return "0 * * * *"
    hours, rest = divmod(minutes, 60)
    if hours and not rest and timedelta(days=1) % timedelta(hours=hours) == timedelta():
        return f"0 */{hours} * * *"
    return _every(_nearest_step(minutes), "* * * *")


def _every(step: int, rest: str) -> str:
    return f"* {rest}" if step == 1 else f"*/{step} {rest}"


def _nearest_step(target: int) -> int:
    return min(STEPS, key=lambda step: abs(step - target))
