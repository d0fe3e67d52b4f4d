"""Delay starts by a random time, so that many jobs of one schedule do not start in the same second."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trax.bounds import is_duration
from trax.errors import InvalidArgument

if TYPE_CHECKING:
    from random import Random

SECOND = timedelta(seconds=1)


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
