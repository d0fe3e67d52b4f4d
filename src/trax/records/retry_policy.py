"""How long to wait before trying again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The waits between attempts: `delay`, then `multiplier` times as long each time, up to `max_delay`."""

    delay: timedelta
    multiplier: float
    max_delay: timedelta
    jitter: float = 0.0

    def wait_after(self, failures: int, *, chance: float = 0.0) -> timedelta:
        """How long to wait after this many failures in a row; `chance` in [0, 1] is where in the jitter."""
        # A long row of failures must not overflow: the cap is reached long before.
        factor = min(self.multiplier ** min(failures - 1, 64), 1e9)
        waited = min(self.delay * factor, self.max_delay) if self.delay else timedelta(0)
        return waited * (1 + self.jitter * chance)
