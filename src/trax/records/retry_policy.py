"""How often to try again, and how long to wait before that."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from trax.bounds import LONGEST

if TYPE_CHECKING:
    from collections.abc import Collection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits between attempts: `delay`, then `multiplier` times as long each time, up to `max_delay`.

    `jitter` adds up to that share of a wait, so that what failed together is not tried again together. No
    wait exceeds `max_delay`: near it the jitter is taken from below, but not from below `delay`.
    `give_up_on` are the qualified names of exception classes after which trying again would not help.
    """

    delay: timedelta
    multiplier: float
    max_delay: timedelta
    jitter: float = 0.0
    max_retries: int = 3
    give_up_on: tuple[str, ...] = ()

    def wait_after(self, failures: int, *, chance: float = 0.0) -> timedelta:
        """How long to wait after this many failures in a row; `chance` in [0, 1] is where in the jitter."""
        most = min(self.max_delay, LONGEST)
        shortest = min(self._plain_wait(failures), max(self.delay, most / (1 + self.jitter)))
        longest = min(shortest * (1 + self.jitter), most)
        return min(shortest + (longest - shortest) * chance, most)

    def _plain_wait(self, failures: int) -> timedelta:
        """Without the jitter. A long row of failures must not overflow, so the factor is compared first."""
        if not self.delay:
            return timedelta(0)
        most = min(self.max_delay, LONGEST)
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
        """A stored policy. None for none, and for one that cannot be read: a bad row must block nobody."""
        if text is None:
            return None
        try:
            kept = json.loads(text)
            return cls(
                delay=timedelta(seconds=kept["delay"]),
                multiplier=float(kept["multiplier"]),
                max_delay=timedelta(seconds=kept["max_delay"]),
                jitter=float(kept["jitter"]),
                max_retries=int(kept["max_retries"]),
                give_up_on=tuple(map(str, kept.get("give_up_on", ()))),
            )
        except (ArithmeticError, LookupError, TypeError, ValueError):
            logger.warning("a stored retry policy cannot be read, the app's own is used: %.80s", text)
            return None


def gives_up(policy: RetryPolicy | None, raised: Collection[str], *, otherwise: bool) -> bool:
    """Whether trying again would not help after an error whose classes have these names.

    That is the stored policy's to say; `otherwise` counts where there is none, or where nothing was raised.
    """
    return otherwise if policy is None or not raised else not set(policy.give_up_on).isdisjoint(raised)
