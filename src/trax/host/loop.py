"""One background duty, turn after turn, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from trax.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

JITTER = 0.2


class Loop:
    """Calls `turn` again and again; turns never overlap, and one that fails does not end the loop.

    A turn returns how many seconds may pass before the next one is wanted: 0 for at once, None for whenever
    the poll comes round. A wake-up ends the wait.
    """

    def __init__(
        self, name: str, turn: Callable[[], Awaitable[float | None]], *, poll_seconds: Callable[[], float]
    ) -> None:
        self.name = name
        self._turn = turn
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._stopping = False
        self._home = asyncio.get_running_loop()

    def wake(self) -> None:
        """Ask for a turn now. Any thread may."""
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Let the turn under way end, and begin no other."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        while not self._stopping:
            self._woken.clear()  # before the turn, so that a wake-up during it is not lost
            await self._sleep(await self._guarded_turn())

    async def _guarded_turn(self) -> float | None:
        try:
            return await self._turn()
        except StoreError as error:
            logger.warning("loop %s: a turn failed, trying again: %s", self.name, error)
        except Exception:
            logger.exception("loop %s: a turn failed, trying again", self.name)
        return None

    async def _sleep(self, wanted: float | None) -> None:
        poll = self._poll_seconds() * random.uniform(1 - JITTER, 1)  # noqa: S311 - spreads servers in time
        seconds = poll if wanted is None else min(wanted, poll)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return
