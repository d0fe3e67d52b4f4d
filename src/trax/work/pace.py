"""Estimate how many runs end while more are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Pace:
    """Measures the rate of ended runs between fetches.

    The rate counts, not the runs that end during a fetch: short jobs may all have ended before it begins.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_fetch_at = clock()
        self._ended = 0

    def endings_during_fetch(self, began: float, ended: int) -> int:
        """How many runs end during a fetch that began then and is done now; `ended` is the total so far."""
        now = self._clock()
        since, took, new = now - self._last_fetch_at, now - began, ended - self._ended
        self._last_fetch_at, self._ended = now, ended
        return new if since <= took else int(new * took / since)
