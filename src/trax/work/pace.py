"""How many runs end while more of them are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Pace:
    """Looks back from fetch to fetch, and spreads what ended in between over that time.

    Short jobs may all be done before the next fetch begins: none ends during it, and yet more could have.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._ended = 0

    def during_fetch(self, began: float, ended: int) -> int:
        """How many end in the time of a fetch that began then and is over now; `ended` counts all, ever."""
        now = self._clock()
        since, took, new = now - self._looked_at, now - began, ended - self._ended
        self._looked_at, self._ended = now, ended
        return new if since <= took else int(new * took / since)
