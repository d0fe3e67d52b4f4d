"""The regular moments of a schedule, whatever its kind: the next one, the latest, the ones to make up."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from trax.errors import DefinitionError
from trax.records.states import ScheduleType
from trax.records.when import Cron, Interval
from trax.schedule.expression import parsed
from trax.schedule.occurrences import latest_occurrence, next_occurrence
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from trax.records.when import Timing

RESOLUTION = timedelta(microseconds=1)


class Steps(NamedTuple):
    """Moments at equal distances, so that any of them is found by dividing."""

    anchor: datetime
    step: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return self._up_to(moment) + self.step

    def latest(self, up_to: datetime, after: datetime) -> datetime | None:
        moment = self._up_to(up_to)
        return moment if moment > after else None

    def oldest_of(self, limit: int, up_to: datetime, after: datetime) -> datetime | None:
        """Of the latest `limit` moments after the one and up to the other, the oldest."""
        latest = self.latest(up_to, after)
        return None if latest is None else max(self.next_after(after), latest - (limit - 1) * self.step)

    def _up_to(self, moment: datetime) -> datetime:
        return self.anchor + (moment - self.anchor) // self.step * self.step


class CronMoments(NamedTuple):
    """The moments of a cron expression, found by walking from one to the next."""

    cron: Cron

    def next_after(self, moment: datetime) -> datetime:
        return next_occurrence(self.cron, moment)

    def latest(self, up_to: datetime, after: datetime) -> datetime | None:
        return latest_occurrence(self.cron, up_to, after)

    def oldest_of(self, limit: int, up_to: datetime, after: datetime) -> datetime | None:
        oldest = None
        for _ in range(limit):
            earlier = self.latest(up_to, after)
            if earlier is None:
                break
            oldest, up_to = earlier, earlier - RESOLUTION
        return oldest


Pace: TypeAlias = Steps | CronMoments


def pace_of(timing: Timing, anchor: datetime) -> Pace:
    """The pace of a manifest; what cannot be followed is refused with the reason, here and nowhere later.

    An interval is counted from `anchor`, unless it is anchored itself: then from when the manifest was made.
    """
    kind, schedule = timing.schedule_type, timing.schedule
    if kind is ScheduleType.INTERVAL and isinstance(schedule, Interval):
        return Steps(timing.created_at if schedule.anchored else anchor, _step(schedule.seconds))
    if kind is ScheduleType.CRON and isinstance(schedule, Cron):
        parsed(schedule.expression)
        zone_named(schedule.time_zone)
        return CronMoments(schedule)
    if kind in (ScheduleType.INTERVAL, ScheduleType.CRON):
        raise DefinitionError(f"a manifest of type {kind} without a schedule of that type never runs")
    raise DefinitionError(f"a manifest of type {kind} is not started by time")


@lru_cache
def _step(seconds: int) -> timedelta:
    if seconds <= 0:
        raise DefinitionError(f"an interval of {seconds} seconds never comes round")
    return timedelta(seconds=seconds)
