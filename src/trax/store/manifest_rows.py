"""A manifest's row as the values that decisions are made of."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trax.records.exclusions import exclusions_from_json
from trax.records.retry_policy import RetryPolicy
from trax.records.states import MisfirePolicy, ScheduleType
from trax.records.when import Cron, Interval, Misfire, Timing
from trax.store.json import parsed

if TYPE_CHECKING:
    from sqlalchemy import Row

    from trax.records.when import Schedule


def timing_of(row: Row[Any], default_threshold: timedelta) -> Timing:
    return Timing(
        schedule_type=ScheduleType(row.schedule_type),
        schedule=schedule_of(row),
        scheduled_at=row.scheduled_at,
        exclusions=exclusions_from_json(row.exclusions),
        time_zone=row.time_zone,
        misfire=Misfire(
            MisfirePolicy(row.misfire_policy), _threshold(row, default_threshold), row.misfire_limit
        ),
        max_instances=row.max_instances,
        created_at=row.created_at,
        last_successful_run=row.last_successful_run,
        last_scheduled_for=row.last_scheduled_for,
        next_scheduled_run=row.next_scheduled_run,
    )


def schedule_of(row: Row[Any]) -> Schedule | None:
    match row.schedule_type:
        case ScheduleType.INTERVAL:
            return Interval(
                row.interval_seconds, anchored=row.anchored, variance_seconds=row.variance_seconds
            )
        case ScheduleType.CRON:
            return Cron(row.cron_expression, row.time_zone, row.variance_seconds)
        case _:
            return None


def retry_of(text: str | None) -> RetryPolicy | None:
    if text is None:
        return None
    kept = parsed(text)
    return RetryPolicy(
        delay=timedelta(seconds=kept["delay"]),
        multiplier=kept["multiplier"],
        max_delay=timedelta(seconds=kept["max_delay"]),
        jitter=kept["jitter"],
    )


def _threshold(row: Row[Any], default: timedelta) -> timedelta:
    own = row.misfire_threshold_seconds
    return default if own is None else timedelta(seconds=own)
