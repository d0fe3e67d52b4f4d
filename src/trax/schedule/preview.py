"""Preview the next runs of a manifest, and describe its schedule in words. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from cronsim import CronSim

from trax.clock import format_duration
from trax.errors import DefinitionError
from trax.records.schedule import Cron, Interval, Schedule
from trax.schedule.cron import REFERENCE_TIME, parse_expression
from trax.schedule.due import Fire, Never, Wait, check_due
from trax.schedule.zones import repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from trax.records.schedule import Timing


SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Preview:
    """A future run: the moment, the local time, and a remark on daylight saving time."""

    at: datetime
    local: datetime
    remark: str | None = None


def preview_runs(timing: Timing, now: datetime, count: int) -> list[Preview]:
    """The next `count` runs, as the manifest manager would decide them."""
    zone = zone_named(timing.time_zone)
    moments = _moments(timing, now)
    selected = [moment for moment, _ in zip(moments, range(count), strict=False)]
    return [
        Preview(moment, moment.astimezone(zone), describe_clock_change(moment, zone)) for moment in selected
    ]


def describe_clock_change(moment: datetime, zone: ZoneInfo) -> str | None:
    """A remark if the clock changes at this moment, or shows this time twice; else None."""
    wall, before = wall_at(moment, zone), wall_at(moment - SECOND, zone) + SECOND
    if repeat := repeat_around(wall, zone):
        which = "second" if moment >= repeat.turned_at else "first"
        return f"the clocks show {wall:%H:%M} twice; this is the {which} time"
    if wall > before:
        return f"the clocks jump from {before:%H:%M} to {wall:%H:%M}; the time between does not exist"
    return None


def _moments(timing: Timing, now: datetime) -> Iterator[datetime]:
    while True:
        match check_due(timing, now):
            case Fire(scheduled_for):
                yield now
                timing = timing._replace(
                    last_successful_run=now, last_scheduled_for=scheduled_for, next_scheduled_run=None
                )
            case Wait(until):
                now = until
            case Never():
                return


STEPS: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)
"""The divisors of 60: cron steps that divide a minute or an hour evenly."""


def explain(schedule: Schedule) -> str:
    """`every 5 min`, `At 07:00 on Monday through Friday (Europe/Berlin)`."""
    words = _interval_in_words(schedule) if isinstance(schedule, Interval) else _cron_in_words(schedule)
    variance = schedule.variance_seconds
    return f"{words}, up to {format_duration(variance)} later" if variance else words


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
    duration = format_duration(interval.seconds)
    return f"every {duration}, at a fixed rate" if interval.anchored else f"every {duration}"


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
