"""When a manifest would run next, if every run took no time and succeeded. No I/O: give it a timing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from trax.schedule.due import Fire, Never, Wait, look
from trax.schedule.zones import repeat_around, wall_at, zone_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from trax.records.when import Timing

SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Preview:
    """A run to come: when, what the clocks of its zone show, and what is odd about that."""

    at: datetime
    local: datetime
    remark: str | None = None


def previewed(timing: Timing, now: datetime, count: int) -> list[Preview]:
    """The next runs, as the manager would decide them one after the other."""
    zone = zone_named(timing.time_zone)
    moments = _moments(timing, now)
    found = [moment for moment, _ in zip(moments, range(count), strict=False)]
    return [Preview(moment, moment.astimezone(zone), odd_about(moment, zone)) for moment in found]


def odd_about(moment: datetime, zone: ZoneInfo) -> str | None:
    """What daylight saving time does to this moment: clocks that jump to it, or show it twice."""
    wall, before = wall_at(moment, zone), wall_at(moment - SECOND, zone) + SECOND
    if repeat := repeat_around(wall, zone):
        which = "second" if moment >= repeat.turned_at else "first"
        return f"the clocks show {wall:%H:%M} twice; this is the {which} time"
    if wall > before:
        return f"the clocks jump from {before:%H:%M} to {wall:%H:%M}; the time between does not exist"
    return None


def _moments(timing: Timing, now: datetime) -> Iterator[datetime]:
    while True:
        match look(timing, now):
            case Fire(scheduled_for):
                yield now
                timing = timing._replace(
                    last_successful_run=now, last_scheduled_for=scheduled_for, next_scheduled_run=None
                )
            case Wait(until):
                now = until
            case Never():
                return
