"""One background duty, turn after turn, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trax.clock import is_set_within
from trax.errors import StoreError
from trax.host.opening import use_web_lane

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

logger = logging.getLogger(__name__)

_chance: Final = Random()  # noqa: S311 - spreads servers in time, also where a train calls random.seed
JITTER: Final = 0.2
PAUSES: Final = (0.5, 1.0, 2.0, 5.0)
"""How long a loop waits after a turn that failed, if its own poll is not sooner."""


class Loop:
    """Calls `turn` again and again; turns never overlap, and one that fails does not end the loop.

    A turn returns how many seconds may pass before the next one is wanted: 0 for at once, None for whenever
    the poll comes round. A wake-up ends the wait. The first turn comes `first_after` seconds after the start.
    """

    def __init__(
        self,
        name: str,
        turn: Callable[[], Awaitable[float | None]],
        *,
        poll_seconds: Callable[[], float],
        first_after: float = 0,
    ) -> None:
        self.name = name
        self._extra = {"loop": name}
        self.is_asked = True
        """Whether this turn was woken or wanted. If not, only the poll came round; nothing is expected."""
        self.turns = 0
        self.failed_turns = 0
        self._turn = turn
        self._poll_seconds = poll_seconds
        self._first_after = first_after
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._last_failure: type[Exception] | None = None
        self._home = asyncio.get_running_loop()

    def wake(self) -> None:
        """Ask for a turn now. Any thread may."""
        if self._woken.is_set() or self._home.is_closed():
            return
        self._home.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Let the turn under way end, and begin no other."""
        self._stopping = True
        self.wake()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    async def run(self) -> None:
        await self._sleep(self._first_after)
        while not self._stopping:
            self._woken.clear()  # before the turn, so that a wake-up during it is not lost
            await self._sleep(await self._guarded_turn())

    async def _guarded_turn(self) -> float | None:
        self.turns += 1
        try:
            wanted = await self._turn()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next turn may go well
            self._note_failure(error)
            return PAUSES[min(self._failures, len(PAUSES)) - 1]
        if self._failures:
            text = "loop %s: goes on, after %s turns that failed"
            logger.info(text, self.name, self._failures, extra=self._extra)
            self._failures = 0
        return wanted

    def _note_failure(self, error: Exception) -> None:
        """Say it once: a database that is gone for an hour is one piece of news, not a thousand."""
        is_known = self._failures > 0 and type(error) is self._last_failure
        self._failures += 1
        self.failed_turns += 1
        self._last_failure = type(error)
        if is_known:
            logger.debug("loop %s: failed again: %s", self.name, error, extra=self._extra)
        elif isinstance(error, StoreError):
            logger.warning("loop %s: a turn failed, trying again: %s", self.name, error, extra=self._extra)
        else:
            logger.error("loop %s: a turn failed, trying again", self.name, exc_info=error, extra=self._extra)

    async def _sleep(self, wanted: float | None) -> None:
        poll = self._poll_seconds() * _chance.uniform(1 - JITTER, 1)
        seconds = poll if wanted is None else min(wanted, poll)
        self.is_asked = wanted is not None and wanted <= poll
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        if await is_set_within(self._woken, seconds):
            self.is_asked = True


async def run_in_loop(home: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Do this in another thread's event loop, with the context of this task, and wait for it here."""
    if home is asyncio.get_running_loop() or home.is_closed():
        return await work
    began: list[asyncio.Task[Any]] = []
    unwanted = Event()

    async def there() -> T:
        began.extend(filter(None, [asyncio.current_task()]))
        if unwanted.is_set():
            work.close()
            raise asyncio.CancelledError
        use_web_lane(is_for_web=False)
        return await work

    under_way = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(there(), home))
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        # What has begun there is asked to stop, and its end is waited for: it may have something to write.
        unwanted.set()
        home.call_soon_threadsafe(lambda: [task.cancel() for task in began])
        under_way.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.wait([under_way])
        raise
