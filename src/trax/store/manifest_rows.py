"""A manifest's row as the values that decisions are made of."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.errors import shown
from trax.records.exclusions import exclusions_from_json
from trax.records.states import MisfirePolicy, ScheduleType
from trax.records.when import Cron, Interval, Misfire, Timing

if TYPE_CHECKING:
    from trax.records.when import Exclusion, Schedule

RHYTHM: Final = (
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
"""The columns that say when it runs in general. Many manifests have them in common."""
OCCASION: Final = (
    "created_at",
    "scheduled_at",
    "max_instances",
    "last_successful_run",
    "last_scheduled_for",
    "next_scheduled_run",
    "plan_after",
)
"""The columns of a timing that are each manifest's own."""
_rhythm_in, _occasion_in = attrgetter(*RHYTHM), attrgetter(*OCCASION)


class Rhythm(NamedTuple):
    """What the columns of `RHYTHM` mean."""

    schedule_type: ScheduleType
    schedule: Schedule | None
    exclusions: tuple[Exclusion, ...]
    time_zone: str
    misfire: Misfire
    broken: str | None


def timing_of(row: Any, default_threshold: timedelta) -> Timing:
    """The timing of a row that has all these columns."""
    return timing_from(_rhythm_in(row), _occasion_in(row), default_threshold)


def timing_from(rhythm: tuple[Any, ...], occasion: tuple[Any, ...], default_threshold: timedelta) -> Timing:
    """The same of the values of `RHYTHM` and of `OCCASION`, in their order: a cycle makes many."""
    kind, schedule, exclusions, time_zone, misfire, broken = _rhythm(default_threshold, *rhythm)
    created_at, scheduled_at, max_instances, succeeded_at, queued_for, planned, plan_after = occasion
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
def _rhythm(default_threshold: timedelta, *values: Any) -> Rhythm:
    """Read once what many manifests share, and each look would read again."""
    column: dict[str, Any] = dict(zip(RHYTHM, values, strict=True))
    own = column["misfire_threshold_seconds"]
    threshold = default_threshold if own is None else timedelta(seconds=own)
    exclusions, broken = _exclusions(column["exclusions"])
    return Rhythm(
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
    """The exclusions, and why they cannot be read: a newer server may have written a kind unknown here."""
    try:
        return exclusions_from_json(text), None
    except ValueError:
        return (), f"its exclusions cannot be read: {shown(text)}"
