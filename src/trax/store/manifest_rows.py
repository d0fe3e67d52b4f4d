"""A manifest's row as the values that decisions are made of."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trax.errors import shown
from trax.records.exclusions import exclusions_from_json
from trax.records.states import MisfirePolicy, ScheduleType
from trax.records.when import Cron, Interval, Misfire, Timing

if TYPE_CHECKING:
    from trax.records.when import Exclusion, Schedule


def timing_of(row: Any, default_threshold: timedelta) -> Timing:
    exclusions, broken = _exclusions(row)
    return Timing(
        schedule_type=ScheduleType(row.schedule_type),
        schedule=schedule_of(row),
        scheduled_at=row.scheduled_at,
        exclusions=exclusions,
        time_zone=row.time_zone,
        misfire=_misfire(row.misfire_policy, _threshold(row, default_threshold), row.misfire_limit),
        max_instances=row.max_instances,
        created_at=row.created_at,
        last_successful_run=row.last_successful_run,
        last_scheduled_for=row.last_scheduled_for,
        next_scheduled_run=row.next_scheduled_run,
        broken=broken,
    )


def schedule_of(row: Any) -> Schedule | None:
    match row.schedule_type:
        case ScheduleType.INTERVAL:
            return _interval(row.interval_seconds, row.anchored, row.variance_seconds)
        case ScheduleType.CRON:
            return Cron(row.cron_expression, row.time_zone, row.variance_seconds)
        case _:
            return None


@lru_cache
def _interval(seconds: int, anchored: bool, variance_seconds: int | None) -> Interval:  # noqa: FBT001 - a column
    return Interval(seconds, anchored=anchored, variance_seconds=variance_seconds)


@lru_cache
def _misfire(policy: str, threshold: timedelta, limit: int | None) -> Misfire:
    return Misfire(MisfirePolicy(policy), threshold, limit)


def _exclusions(row: Any) -> tuple[tuple[Exclusion, ...], str | None]:
    """The exclusions, and why they cannot be read: a newer server may have written a kind unknown here."""
    try:
        return exclusions_from_json(row.exclusions), None
    except ValueError:
        return (), f"its exclusions cannot be read: {shown(row.exclusions)}"


def _threshold(row: Any, default: timedelta) -> timedelta:
    own = row.misfire_threshold_seconds
    return default if own is None else timedelta(seconds=own)
