"""What starts a manifest: a schedule, a single time, another manifest, or a manual trigger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from trax.errors import DefinitionError, format_value
from trax.records.states import ScheduleType
from trax.records.when import Cron, Interval, Schedule
from trax.schedule.expression import parse_expression
from trax.schedule.zones import zone_named

When: TypeAlias = Schedule | Literal["on_demand", "none"]
"""The `when` argument of `schedule`; `on_demand` runs only when triggered."""


@dataclass(frozen=True, slots=True)
class Once:
    """Run once, `delay` after the app starts."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class AfterManifest:
    """Run after each success of another manifest; a dormant one only when a run of it activates it."""

    parent: str


Occasion: TypeAlias = Interval | Cron | Once | AfterManifest | ScheduleType


def parse_when(place: str, when: Any) -> Occasion:
    """Validate a `when` argument. A plain string gets a hint to use cron(…)."""
    if isinstance(when, Interval | Cron):
        return _validate_schedule(place, when)
    if when in (ScheduleType.NONE, ScheduleType.ON_DEMAND):
        return ScheduleType(when)
    hint = f"; did you mean cron({when!r})?" if isinstance(when, str) else ""
    raise DefinitionError(
        f'{place} needs every(…), cron("…") or "on_demand" (got {format_value(when)}){hint}'
    )


def schedule_type_of(occasion: Occasion) -> ScheduleType:
    match occasion:
        case Interval():
            return ScheduleType.INTERVAL
        case Cron():
            return ScheduleType.CRON
        case Once():
            return ScheduleType.ONCE
        case AfterManifest():
            return ScheduleType.DEPENDENT
        case ScheduleType():
            return occasion


def _validate_schedule(place: str, schedule: Schedule) -> Schedule:
    """Validate a schedule: one that was not built by `every` or `cron` has not been validated yet."""
    if isinstance(schedule, Cron):
        parse_expression(schedule.expression)
        zone_named(schedule.time_zone)
    elif schedule.seconds < 1:
        raise DefinitionError(f"{place} needs an interval of 1 second or more (got {format_value(schedule)})")
    if schedule.variance_seconds is not None and schedule.variance_seconds < 0:
        raise DefinitionError(f"{place} needs a variance of 0 seconds or more (got {format_value(schedule)})")
    return schedule
