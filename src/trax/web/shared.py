"""One answer for all who watch: told of a change in the same moment, they ask the same in the same moment."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

T = TypeVar("T")

LASTS_SECONDS: Final = 2.0


class Shared:
    """Keeps what was asked, for as long as nobody was told of another change, and never for long."""

    def __init__(self) -> None:
        self._mark = ""
        self._answers: dict[Hashable, tuple[asyncio.Task[Any], float]] = {}

    async def answer(self, mark: str, question: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What somebody else was answered since the news stood at this mark; else it is asked now.

        Whoever asked first may leave before the answer is there: the others still get it.
        """
        if mark != self._mark:
            self._mark, self._answers = mark, {}
        task, until = self._answers.get(question, (None, 0.0))
        if task is None or time.monotonic() > until:
            task = asyncio.create_task(ask())
            self._answers[question] = task, time.monotonic() + LASTS_SECONDS
        return await asyncio.shield(task)
