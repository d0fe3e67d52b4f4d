"""When to retry an HTTP call. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from trax.errors import DefinitionError, format_value

RETRY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Statuses of a busy endpoint, or of a proxy that cannot reach it."""

JITTER: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetry:
    """How often a call is retried, and after how long: `base_delay`, doubled each time."""

    max_retries: int = 5
    base_delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise DefinitionError(f"max_retries must be 0 or more (got {format_value(self.max_retries)})")
        if not timedelta() <= self.base_delay <= self.max_delay:
            raise DefinitionError(
                f"base_delay must be between 0 and max_delay (got {self.base_delay} and {self.max_delay})"
            )

    @property
    def total_delay(self) -> timedelta:
        """The longest possible sum of all delays."""
        return self.max_retries * self.max_delay

    def wait(self, retries: int, retry_after: str | None, *, chance: float, now: datetime) -> float | None:
        """Seconds to wait before the next retry; None to give up.

        `chance` is a random number between 0 and 1. A `Retry-After` header applies, up to `max_delay`.
        """
        if retries >= self.max_retries:
            return None
        longest = self.max_delay.total_seconds()
        requested = _parse_retry_after(retry_after, now)
        if requested is not None:
            return min(requested, longest)
        delay = min(self.base_delay.total_seconds() * 2.0**retries, longest)
        return delay * (1 - JITTER + 2 * JITTER * chance)


def _parse_retry_after(retry_after: str | None, now: datetime) -> float | None:
    """The header's seconds, or the seconds until its date; None if it is invalid."""
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
