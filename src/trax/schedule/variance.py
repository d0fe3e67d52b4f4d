"""Spreading starts out in time, so that a thousand jobs of one schedule do not start in one second."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trax.bounds import is_duration
from trax.errors import InvalidArgument

if TYPE_CHECKING:
    from random import Random

SECOND = timedelta(seconds=1)


def variance_seconds(variance: timedelta | None) -> int | None:
    """What is stored for a variance; none and zero both mean that it is off."""
    if variance is None:
        return None
    if not is_duration(variance) or variance % SECOND:
        raise InvalidArgument("variance", "a timedelta of whole seconds, from 0 to 68 years", variance)
    return variance // SECOND or None


def jittered(base: datetime, variance_seconds: int | None, random: Random) -> datetime:
    """Some whole second from `base` to `variance_seconds` later, never before it."""
    return base + timedelta(seconds=random.randint(0, variance_seconds or 0))
