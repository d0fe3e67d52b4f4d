"""SIGTERM and SIGINT as something to wait for."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Counts the requests to end this process, for as long as the block lasts.

    The first one asks: what runs may end. The second one hurries: what runs is interrupted and goes back to
    the queue. The third one is obeyed at once.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._hear, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.remove_signal_handler(number)

    async def unless_asked(
        self, work: Coroutine[Any, Any, None], *, hurry: Callable[[], None] = lambda: None
    ) -> None:
        """Do this, or break it off when the process is asked to end meanwhile; `hurry` makes that quick."""
        doing, asked = asyncio.create_task(work), asyncio.create_task(self.asked.wait())
        try:
            await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not doing.done():
                hurry()
            for task in (doing, asked):
                task.cancel()  # no harm to the one that is done
            await asyncio.wait({doing, asked})
        if not doing.cancelled():
            await doing

    def _hear(self, number: int) -> None:
        if self.hurried.is_set():
            os._exit(128 + number)
        (self.hurried if self.asked.is_set() else self.asked).set()
