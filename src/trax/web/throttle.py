"""Those who guess have to wait: longer after each wrong guess."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

FREE: Final = 5
"""So many wrong guesses cost nothing: people mistype."""
LONGEST_SECONDS: Final = 60.0
FORGET_SECONDS: Final = 900.0
REMEMBERED: Final = 10_000


@dataclass(slots=True)
class Throttle:
    """Counts wrong guesses for each key, such as an address or the name of a user, in this process."""

    clock: Callable[[], float] = time.monotonic
    _failures: dict[Hashable, tuple[int, float]] = field(default_factory=dict[Hashable, tuple[int, float]])

    def wait_seconds(self, *keys: Hashable) -> float:
        """How long whoever has these keys has to wait before the next guess; 0 when they need not."""
        return max((self._wait(key) for key in keys), default=0.0)

    def failed(self, *keys: Hashable) -> None:
        now = self.clock()
        for key in keys:
            count, _ = self._known(key)
            self._failures.pop(key, None)  # to the end: the oldest are forgotten first
            self._failures[key] = (count + 1, now)
        while len(self._failures) > REMEMBERED:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, *keys: Hashable) -> None:
        for key in keys:
            self._failures.pop(key, None)

    def _wait(self, key: Hashable) -> float:
        count, last = self._known(key)
        if count < FREE:
            return 0.0
        wanted = min(LONGEST_SECONDS, 2.0 ** min(count - FREE, 10))
        return max(0.0, last + wanted - self.clock())

    def _known(self, key: Hashable) -> tuple[int, float]:
        count, last = self._failures.get(key, (0, 0.0))
        return (count, last) if self.clock() - last < FORGET_SECONDS else (0, 0.0)
