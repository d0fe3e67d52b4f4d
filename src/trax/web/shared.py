"""Share one read between live pages: after a change they all need the same numbers at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

T = TypeVar("T")

LASTS_SECONDS: Final = 2.0


class SharedReads:
    """Caches results until the next change event, and for at most a few seconds."""

    def __init__(self) -> None:
        self._mark = ""
        self._answers: dict[Hashable, tuple[asyncio.Task[Any], float]] = {}

    async def get(self, event_id: str, key: Hashable, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The cached result for this event id, or a new read.

        The first caller may be cancelled before the result is there: the others still get it.
        """
        if event_id != self._mark:
            self._mark, self._answers = event_id, {}
        task, until = self._answers.get(key, (None, 0.0))
        if task is None or time.monotonic() > until:
            task = asyncio.create_task(read())
            self._answers[key] = task, time.monotonic() + LASTS_SECONDS
        return await asyncio.shield(task)
