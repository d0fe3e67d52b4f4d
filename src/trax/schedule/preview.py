"""Preview the next runs of a manifest, as if every run succeeded immediately. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.schedule.due import Fire, Never, Wait, check_due
from trax.schedule.zones import repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from trax.records.when import Timing

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
