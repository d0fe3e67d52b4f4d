"""Schedules by distance: every so many seconds, minutes, hours or days."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from trax.bounds import LONGEST_SECONDS, is_number
from trax.errors import DefinitionError, shown
from trax.records.when import Cron, Interval
from trax.schedule.variance import variance_seconds

if TYPE_CHECKING:
    from datetime import timedelta

AnySchedule = TypeVar("AnySchedule", Interval, Cron)


def every(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    variance: timedelta | None = None,
    anchored: bool = False,
) -> Interval:
    """Every so often, counted from the end of the last success.

    An anchored interval keeps a fixed rate instead: its moments are laid out from when the manifest was made,
    however long a run takes.
    """
    parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
    are_numbers = all(is_number(value, 0, LONGEST_SECONDS) for value in parts.values())
    total = seconds + 60 * minutes + 3600 * hours + 86400 * days if are_numbers else 0
    if not is_number(total, 1, LONGEST_SECONDS) or total != int(total):
        raise DefinitionError(f"every({_written(parts)}) is not a whole number of seconds from 1 to 68 years")
    return Interval(int(total), anchored=anchored, variance_seconds=variance_seconds(variance))


def _written(parts: dict[str, float]) -> str:
    return ", ".join(f"{unit}={shown(value)}" for unit, value in parts.items() if value != 0)


def with_variance(schedule: AnySchedule, variance: timedelta | None) -> AnySchedule:
    """The same schedule with another variance."""
    return replace(schedule, variance_seconds=variance_seconds(variance))
