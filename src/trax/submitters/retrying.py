"""When a call that was put off is made again. Pure: give it an answer, get a number of seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from trax.errors import DefinitionError, shown

PUT_OFF: Final = frozenset({429, 502, 503, 504})
"""Answers of somebody who is busy, or of a proxy that finds nobody at home."""

JITTER: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a call is made again, and after how long: `base_delay`, then twice as long each time."""

    max_retries: int = 5
    base_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise DefinitionError(f"max_retries must be 0 or more (got {shown(self.max_retries)})")
        if not timedelta() <= self.base_delay <= self.max_delay:
            raise DefinitionError(
                f"base_delay must lie between 0 and max_delay (got {self.base_delay} and {self.max_delay})"
            )

    @property
    def longest(self) -> timedelta:
        """How long all the waiting may take together."""
        return self.max_retries * self.max_delay

    def wait(self, retries: int, retry_after: str | None, *, chance: float, now: datetime) -> float | None:
        """How many seconds to wait after so many retries; None: give up.

        `chance` lies between 0 and 1. Whoever says `Retry-After` is heeded, within our own limit.
        """
        if retries >= self.max_retries:
            return None
        longest = self.max_delay.total_seconds()
        asked = _asked(retry_after, now)
        if asked is not None:
            return min(asked, longest)
        delay = min(self.base_delay.total_seconds() * 2.0**retries, longest)
        return delay * (1 - JITTER + 2 * JITTER * chance)


def _asked(retry_after: str | None, now: datetime) -> float | None:
    """The header's seconds, or the time until its date; None when it cannot be understood."""
    if retry_after is None:
        return None
    if retry_after.strip().isascii() and retry_after.strip().isdigit():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
