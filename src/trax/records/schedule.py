"""Schedules, exclusions and misfire policies of manifests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from trax.records.states import MisfirePolicy, ScheduleType


@dataclass(frozen=True, slots=True)
class Interval:
    """A fixed interval, counted from the end of the last success or, if anchored, at a fixed rate."""

    seconds: int
    anchored: bool = False
    variance_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    expression: str
    time_zone: str = "UTC"
    variance_seconds: int | None = None


Schedule = Interval | Cron


@dataclass(frozen=True, slots=True)
class DaysOfWeek:
    """Days of the week; Monday is 0."""

    days: tuple[int, ...]
    kind: Literal["days_of_week"] = "days_of_week"


@dataclass(frozen=True, slots=True)
class Dates:
    """Whole dates."""

    dates: tuple[date, ...]
    kind: Literal["dates"] = "dates"


@dataclass(frozen=True, slots=True)
class DateRange:
    """From one date to another, both inclusive."""

    start: date
    end: date
    kind: Literal["date_range"] = "date_range"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From one time of day to another, across midnight if the end is earlier than the start."""

    start: time
    end: time
    kind: Literal["time_window"] = "time_window"


Window = DaysOfWeek | Dates | DateRange | TimeWindow


@dataclass(frozen=True, slots=True)
class Calendar:
    """A named set of windows that manifests share: excluded or, with `only`, the only times they may run."""

    name: str
    windows: tuple[Window, ...]
    only: bool = False
    kind: Literal["calendar"] = "calendar"


Exclusion = Window | Calendar


@dataclass(frozen=True, slots=True)
class Misfire:
    """The policy for occurrences that are late by more than the threshold; `limit` is for `fire_all`."""

    policy: MisfirePolicy = MisfirePolicy.FIRE_ONCE_NOW
    threshold: timedelta = timedelta(seconds=60)
    limit: int | None = None


class Timing(NamedTuple):
    """All that is needed to decide when a manifest is due.

    `last_successful_run` is when the last success ended. `last_scheduled_for` is the last occurrence that was
    queued. `next_scheduled_run` is a time set in advance: because of jitter, a first run that must not be
    immediate, or the next regular occurrence after a cancelled run. `broken` says why its row cannot be
    parsed; such a manifest is never due. `plan_after` is the end of a cancelled run, if the server that wrote
    it could not compute the next occurrence.
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


_adapter: TypeAdapter[tuple[Exclusion, ...]] = TypeAdapter(tuple[Exclusion, ...])


def exclusions_to_json(exclusions: tuple[Exclusion, ...]) -> str | None:
    """JSON text; None: no exclusions."""
    return _adapter.dump_json(exclusions).decode() if exclusions else None


def is_storable_exclusion(value: Any) -> bool:
    """Whether this is an exclusion that can be read again from its row."""
    if not isinstance(value, Exclusion):
        return False
    try:
        text = _adapter.dump_json((value,), warnings=False)
        return _adapter.validate_json(text) == (value,)
    except (ValueError, RecursionError):
        return False


@lru_cache(maxsize=4096)
def exclusions_from_json(text: str | None) -> tuple[Exclusion, ...]:
    """Parse exclusions; cached, since many manifests share the same few, and every check reads them."""
    return _adapter.validate_json(text) if text else ()
