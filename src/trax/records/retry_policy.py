"""How often to try again, and how long to wait before that."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import timedelta

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits between attempts: `delay`, then `multiplier` times as long each time, up to `max_delay`."""

    delay: timedelta
    multiplier: float
    max_delay: timedelta
    jitter: float = 0.0
    max_retries: int = 3

    def wait_after(self, failures: int, *, chance: float = 0.0) -> timedelta:
        """How long to wait after this many failures in a row; `chance` in [0, 1] is where in the jitter."""
        # A long row of failures must not overflow: the cap is reached long before.
        factor = min(self.multiplier ** min(failures - 1, 64), 1e9)
        waited = min(self.delay * factor, self.max_delay) if self.delay else timedelta(0)
        return waited * (1 + self.jitter * chance)

    def to_json(self) -> str:
        waits = {"delay": self.delay.total_seconds(), "max_delay": self.max_delay.total_seconds()}
        shape = {"multiplier": self.multiplier, "jitter": self.jitter, "max_retries": self.max_retries}
        return json.dumps(waits | shape, sort_keys=True)

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
            )
        except (ArithmeticError, LookupError, TypeError, ValueError):
            logger.warning("a stored retry policy cannot be read, the app's own is used: %.80s", text)
            return None
