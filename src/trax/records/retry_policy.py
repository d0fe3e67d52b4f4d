"""Retry policies: how often to retry, and how long to wait."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from trax.bounds import LONGEST_DURATION

if TYPE_CHECKING:
    from collections.abc import Collection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits between attempts: `delay`, then `multiplier` times as long each time, up to `max_delay`.

    `jitter` adds up to that share of a wait, so that jobs that failed together are not retried together. No
    wait exceeds `max_delay`: near it the jitter shortens the wait instead, but not below `delay`.
    `give_up_on` are the qualified names of exception classes that are not retried.
    """

    delay: timedelta
    multiplier: float
    max_delay: timedelta
    jitter: float = 0.0
    max_retries: int = 3
    give_up_on: tuple[str, ...] = ()

    def wait_after(self, failures: int, *, random: float = 0.0) -> timedelta:
        """How long to wait after this many failures in a row; `random` in [0, 1] selects the jitter."""
        most = min(self.max_delay, LONGEST_DURATION)
        shortest = min(self._wait_without_jitter(failures), max(self.delay, most / (1 + self.jitter)))
        longest = min(shortest * (1 + self.jitter), most)
        return min(shortest + (longest - shortest) * random, most)

    def _wait_without_jitter(self, failures: int) -> timedelta:
        """Without the jitter. A long row of failures must not overflow, so the factor is compared first."""
        if not self.delay:
            return timedelta(0)
        most = min(self.max_delay, LONGEST_DURATION)
        try:
            factor = float(self.multiplier) ** (failures - 1)
        except OverflowError:
            return most
        return min(self.delay * factor, most) if factor < most / self.delay else most

    def to_json(self) -> str:
        waits = {"delay": self.delay.total_seconds(), "max_delay": self.max_delay.total_seconds()}
        shape = {"multiplier": self.multiplier, "jitter": self.jitter, "max_retries": self.max_retries}
        return json.dumps(waits | shape | {"give_up_on": self.give_up_on}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | None) -> RetryPolicy | None:
        """Parse a stored policy; None for None and for invalid text: a bad row must not stop a cycle."""
        if text is None:
            return None
        try:
            stored = json.loads(text)
            return cls(
                delay=timedelta(seconds=stored["delay"]),
                multiplier=float(stored["multiplier"]),
                max_delay=timedelta(seconds=stored["max_delay"]),
                jitter=float(stored["jitter"]),
                max_retries=int(stored["max_retries"]),
                give_up_on=tuple(map(str, stored.get("give_up_on", ()))),
            )
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            logger.warning("stored retry policy cannot be parsed; using the default policy: %.80s", text)
            return None


def should_give_up(policy: RetryPolicy | None, raised: Collection[str], *, default: bool) -> bool:
    """Whether an error whose classes have these names is not retried.

    The stored policy decides; `default` is the result without a policy, or if nothing was raised.
    """
    return default if policy is None or not raised else not set(policy.give_up_on).isdisjoint(raised)
