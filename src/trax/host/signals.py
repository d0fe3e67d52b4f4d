"""Wait for SIGTERM and SIGINT in an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles stop signals while the block lasts.

    The first signal drains: active runs may end. The second interrupts them and returns them to the queue.
    The third exits the process at once.
    """

    def __init__(self) -> None:
        self.stop_requested = asyncio.Event()
        self.hurry_requested = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._handle_signal, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    async def run_until_stopped(
        self, work: Coroutine[Any, Any, None], *, hurry: Callable[[], None] = lambda: None
    ) -> None:
        """Run this until it is done or a stop signal comes, then cancel it; `hurry` is called before that."""
        doing, asked = asyncio.create_task(work), asyncio.create_task(self.stop_requested.wait())
        try:
            await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not doing.done():
                hurry()
            for task in (doing, asked):
                task.cancel()  # no effect on a task that is done
            await asyncio.wait({doing, asked})
        if not doing.cancelled():
            await doing

    def _handle_signal(self, number: int) -> None:
        if self.hurry_requested.is_set():
            os._exit(128 + number)
        (self.hurry_requested if self.stop_requested.is_set() else self.stop_requested).set()
