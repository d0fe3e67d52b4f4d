"""`every(…)`: intervals, and variance, a random delay so that many jobs do not start in the same second."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from trax.bounds import LONGEST_SECONDS, is_duration, is_number
from trax.errors import DefinitionError, InvalidArgument, explain_call, format_value
from trax.records.schedule import Cron, Interval

if TYPE_CHECKING:
    from random import Random


SECOND = timedelta(seconds=1)


AnySchedule = TypeVar("AnySchedule", Interval, Cron)


@explain_call("every(seconds=…, minutes=…, hours=…, days=…)")
def every(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float = 0,
    variance: timedelta | None = None,
    anchored: bool = False,
) -> Interval:
    """Run at an interval, counted from the end of the last success.

    With `anchored=True` the interval keeps a fixed rate instead: occurrences are counted from the creation of
    the manifest, regardless of how long a run takes. `variance` delays each start by a random time up to it.
    """
    parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
    are_numbers = all(is_number(value, 0, LONGEST_SECONDS) for value in parts.values())
    total = seconds + 60 * minutes + 3600 * hours + 86400 * days if are_numbers else 0
    if not is_number(total, 1, LONGEST_SECONDS) or total != int(total):
        raise DefinitionError(
            f"every({_format_parts(parts)}) must be a whole number of seconds, 1 s to 68 years"
        )
    return Interval(int(total), anchored=anchored, variance_seconds=variance_seconds(variance))


def _format_parts(parts: dict[str, float]) -> str:
    return ", ".join(f"{unit}={format_value(value)}" for unit, value in parts.items() if value != 0)


def with_variance(schedule: AnySchedule, variance: timedelta | None) -> AnySchedule:
    """A copy of the schedule with another variance."""
    return replace(schedule, variance_seconds=variance_seconds(variance))


def variance_seconds(variance: timedelta | None) -> int | None:
    """A variance in whole seconds, as it is stored; None and zero both turn it off."""
    if variance is None:
        return None
    if not is_duration(variance) or variance % SECOND:
        raise InvalidArgument("variance", "a timedelta of whole seconds, from 0 to 68 years", variance)
    return variance // SECOND or None


def add_jitter(base: datetime, variance_seconds: int | None, random: Random) -> datetime:
    """`base` plus a random number of whole seconds, from 0 to `variance_seconds`."""
    return base + timedelta(seconds=random.randint(0, variance_seconds or 0))
