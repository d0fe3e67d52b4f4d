"""When something runs: schedules, what is left out of them, and what happens to what was missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Literal, NamedTuple

from trax.records.states import MisfirePolicy, ScheduleType


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so often: counted from the end of the last success, or, when anchored, at a fixed rate."""

    seconds: int
    anchored: bool = False
    variance_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Cron:
    """At the moments of a cron expression, read on the clocks of a time zone."""

    expression: str
    time_zone: str = "UTC"
    variance_seconds: int | None = None


Schedule = Interval | Cron


@dataclass(frozen=True, slots=True)
class DaysOfWeek:
    """Whole days, Monday is 0."""

    days: tuple[int, ...]
    kind: Literal["days_of_week"] = "days_of_week"


@dataclass(frozen=True, slots=True)
class Dates:
    """Whole dates."""

    dates: tuple[date, ...]
    kind: Literal["dates"] = "dates"


@dataclass(frozen=True, slots=True)
class DateRange:
    """From one date to another, both included."""

    start: date
    end: date
    kind: Literal["date_range"] = "date_range"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From one time of day up to another, over midnight when the end is the earlier one."""

    start: time
    end: time
    kind: Literal["time_window"] = "time_window"


Window = DaysOfWeek | Dates | DateRange | TimeWindow


@dataclass(frozen=True, slots=True)
class Calendar:
    """A named set of windows that manifests share: left out, or (`only`) the only time they may run."""

    name: str
    windows: tuple[Window, ...]
    only: bool = False
    kind: Literal["calendar"] = "calendar"


Exclusion = Window | Calendar


@dataclass(frozen=True, slots=True)
class Misfire:
    """What happens to occurrences missed by more than the threshold; `limit` is for `fire_all`."""

    policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE_NOW
    threshold: timedelta = timedelta(seconds=60)
    limit: int | None = None


class Timing(NamedTuple):
    """Everything the decision "is it due" needs to know of a manifest.

    `last_successful_run` is when the last success ended, `last_scheduled_for` the occurrence that was last
    written to the queue, `next_scheduled_run` a moment set beforehand: jitter, a first run that must not be
    at once, or the next regular occurrence after a cancelled run. `broken` says why its row cannot be read;
    such a manifest is never due. `plan_after` is the end of a cancelled run where it was written by a server
    that could not tell the next occurrence.
    """

    schedule_type: ScheduleType
    created_at: datetime
    schedule: Schedule | None = None
    scheduled_at: datetime | None = None
    exclusions: tuple[Exclusion, ...] = ()
    time_zone: str = "UTC"
    misfire: Misfire = Misfire()
    max_instances: int = 1
    last_successful_run: datetime | None = None
    last_scheduled_for: datetime | None = None
    next_scheduled_run: datetime | None = None
    broken: str | None = None
    plan_after: datetime | None = None
