"""The occurrences of an interval or cron schedule: the next, the latest, the oldest missed one."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from trax.errors import DefinitionError
from trax.records.states import ScheduleType
from trax.records.when import Cron, Interval
from trax.schedule.expression import parse_expression
from trax.schedule.occurrences import latest_occurrence, next_occurrence
from trax.schedule.zones import zone_named

if TYPE_CHECKING:
    from trax.records.when import Timing

RESOLUTION = timedelta(microseconds=1)


class IntervalMoments(NamedTuple):
    """The occurrences of an interval: `anchor` plus multiples of `step`."""

    anchor: datetime
    step: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return self._up_to(moment) + self.step

    def latest(self, up_to: datetime, after: datetime) -> datetime | None:
        moment = self._up_to(up_to)
        return moment if moment > after else None

    def oldest_of(self, limit: int, up_to: datetime, after: datetime) -> datetime | None:
        """The oldest of the latest `limit` occurrences after `after` and up to `up_to`."""
        latest = self.latest(up_to, after)
        return None if latest is None else max(self.next_after(after), latest - (limit - 1) * self.step)

    def _up_to(self, moment: datetime) -> datetime:
        return self.anchor + (moment - self.anchor) // self.step * self.step


class CronMoments(NamedTuple):
    """The occurrences of a cron expression."""

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


ScheduleMoments: TypeAlias = IntervalMoments | CronMoments


def schedule_moments(timing: Timing, anchor: datetime) -> ScheduleMoments:
    """The occurrences of a manifest. Raises DefinitionError for a schedule that cannot be evaluated.

    An interval is counted from `anchor`; an anchored interval from the creation of the manifest.
    """
    kind, schedule = timing.schedule_type, timing.schedule
    if kind is ScheduleType.INTERVAL and isinstance(schedule, Interval):
        return IntervalMoments(timing.created_at if schedule.anchored else anchor, _step(schedule.seconds))
    if kind is ScheduleType.CRON and isinstance(schedule, Cron):
        parse_expression(schedule.expression)
        zone_named(schedule.time_zone)
        return CronMoments(schedule)
    if kind in (ScheduleType.INTERVAL, ScheduleType.CRON):
        raise DefinitionError(f"a manifest of type {kind} without a schedule of that type never runs")
    raise DefinitionError(f"a manifest of type {kind} has no schedule")


@lru_cache
def _step(seconds: int) -> timedelta:
    if seconds <= 0:
        raise DefinitionError(f"an interval of {seconds} s is invalid; it must be 1 s or more")
    return timedelta(seconds=seconds)
