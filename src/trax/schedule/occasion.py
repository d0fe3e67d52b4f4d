"""What makes a manifest run: a schedule, a single moment, another manifest, or somebody's hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from trax.errors import DefinitionError, shown
from trax.records.states import ScheduleType
from trax.records.when import Cron, Interval, Schedule
from trax.schedule.expression import parsed
from trax.schedule.zones import zone_named

When: TypeAlias = Schedule | Literal["on_demand", "none"]
"""What `schedule` takes; what is `on_demand` is started by hand only."""


@dataclass(frozen=True, slots=True)
class Once:
    """A single time, so long after the app starts."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class After:
    """Whenever another manifest has succeeded; a dormant one also waits to be asked for by its train."""

    parent: str


Occasion: TypeAlias = Interval | Cron | Once | After | ScheduleType


def occasion_of(place: str, when: Any) -> Occasion:
    """What `when` stands for, with a hint for who wrote a cron expression as plain text."""
    if isinstance(when, Interval | Cron):
        return _possible(place, when)
    if when in (ScheduleType.NONE, ScheduleType.ON_DEMAND):
        return ScheduleType(when)
    hint = f"; did you mean cron({when!r})?" if isinstance(when, str) else ""
    raise DefinitionError(f'{place} needs every(…), cron("…") or "on_demand" (got {shown(when)}){hint}')


def type_of(occasion: Occasion) -> ScheduleType:
    match occasion:
        case Interval():
            return ScheduleType.INTERVAL
        case Cron():
            return ScheduleType.CRON
        case Once():
            return ScheduleType.ONCE
        case After():
            return ScheduleType.DEPENDENT
        case ScheduleType():
            return occasion


def _possible(place: str, schedule: Schedule) -> Schedule:
    """Schedules are plain values: one that was not made by `every` or `cron` has not been checked yet."""
    if isinstance(schedule, Cron):
        parsed(schedule.expression)
        zone_named(schedule.time_zone)
    elif schedule.seconds < 1:
        raise DefinitionError(f"{place} needs an interval of 1 second or more (got {shown(schedule)})")
    if schedule.variance_seconds is not None and schedule.variance_seconds < 0:
        raise DefinitionError(f"{place} cannot vary by less than nothing (got {shown(schedule)})")
    return schedule
