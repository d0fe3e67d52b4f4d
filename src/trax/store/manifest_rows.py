"""Build the `Timing` of a manifest from its row."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.errors import format_value
from trax.records.exclusions import exclusions_from_json
from trax.records.states import MisfirePolicy, ScheduleType
from trax.records.when import Cron, Interval, Misfire, Timing

if TYPE_CHECKING:
    from trax.records.when import Exclusion, Schedule

SCHEDULE_COLUMNS: Final = (
    "schedule_type",
    "interval_seconds",
    "anchored",
    "variance_seconds",
    "cron_expression",
    "time_zone",
    "exclusions",
    "misfire_policy",
    "misfire_threshold_seconds",
    "misfire_limit",
)
"""The columns of the schedule; many manifests have the same values."""
TIMING_COLUMNS: Final = (
    "created_at",
    "scheduled_at",
    "max_instances",
    "last_successful_run",
    "last_scheduled_for",
    "next_scheduled_run",
    "plan_after",
)
"""The columns of a timing that differ between manifests."""
_schedule_values, _timing_values = attrgetter(*SCHEDULE_COLUMNS), attrgetter(*TIMING_COLUMNS)


class ParsedSchedule(NamedTuple):
    """The parsed values of `SCHEDULE_COLUMNS`."""

    schedule_type: ScheduleType
    schedule: Schedule | None
    exclusions: tuple[Exclusion, ...]
    time_zone: str
    misfire: Misfire
    broken: str | None


def timing_of(row: Any, default_threshold: timedelta) -> Timing:
    """Build the timing of a row that has all these columns."""
    return timing_from(_schedule_values(row), _timing_values(row), default_threshold)


def timing_from(
    schedule_values: tuple[Any, ...], timing_values: tuple[Any, ...], default_threshold: timedelta
) -> Timing:
    """Build a timing from the values of `SCHEDULE_COLUMNS` and `TIMING_COLUMNS`, in their order."""
    kind, schedule, exclusions, time_zone, misfire, broken = _parse_schedule(
        default_threshold, *schedule_values
    )
    created_at, scheduled_at, max_instances, succeeded_at, queued_for, planned, plan_after = timing_values
    return Timing(
        kind,
        created_at,
        schedule,
        scheduled_at,
        exclusions,
        time_zone,
        misfire,
        max_instances,
        succeeded_at,
        queued_for,
        planned,
        broken,
        plan_after,
    )


@lru_cache(maxsize=4096)
def _parse_schedule(default_threshold: timedelta, *values: Any) -> ParsedSchedule:
    """Parse the schedule columns; cached, since many manifests share them and each cycle reads them again."""
    column: dict[str, Any] = dict(zip(SCHEDULE_COLUMNS, values, strict=True))
    own = column["misfire_threshold_seconds"]
    threshold = default_threshold if own is None else timedelta(seconds=own)
    exclusions, broken = _exclusions(column["exclusions"])
    return ParsedSchedule(
        schedule_type=ScheduleType(column["schedule_type"]),
        schedule=_schedule(column),
        exclusions=exclusions,
        time_zone=column["time_zone"],
        misfire=Misfire(MisfirePolicy(column["misfire_policy"]), threshold, column["misfire_limit"]),
        broken=broken,
    )


def _schedule(column: dict[str, Any]) -> Schedule | None:
    variance = column["variance_seconds"]
    match column["schedule_type"]:
        case ScheduleType.INTERVAL:
            return Interval(
                column["interval_seconds"], anchored=column["anchored"], variance_seconds=variance
            )
        case ScheduleType.CRON:
            return Cron(column["cron_expression"], column["time_zone"], variance)
        case _:
            return None


def _exclusions(text: str | None) -> tuple[tuple[Exclusion, ...], str | None]:
    """The exclusions, or an error: a newer server may have written a kind that is unknown here."""
    try:
        return exclusions_from_json(text), None
    except ValueError:
        return (), f"its exclusions cannot be read: {format_value(text)}"
