"""How many `app.run` calls execute at once: for each train, and in total."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError, format_value
from trax.forks import bind_to_process
from trax.train.options import LIMIT, is_limit
from trax.train.train import require_train

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.engine.live_settings import LiveSettings
    from trax.train import Train

_slots_in_use: ContextVar[frozenset[RunSlots]] = ContextVar("trax_held_slots", default=frozenset())
"""The slots of the enclosing runs: a nested run must not wait for its own parent."""


class RunLimits:
    """The limits of an app: for each train, and in total."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._overrides: dict[str, int] = {}
        self._trains: dict[str, RunSlots] = {}
        self._all = RunSlots()
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """The runs that hold slots are the parent's."""
        self._trains, self._all = {}, RunSlots()

    def set(self, train: Train[Any, Any], limit: int) -> None:
        """Override the train's own limit."""
        require_train(train)
        if not is_limit(limit):
            raise DefinitionError(
                f"the limit of train {train.name!r} must be {LIMIT} (got {format_value(limit)})"
            )
        self._overrides[train.name] = limit

    @asynccontextmanager
    async def slot(self, train: Train[Any, Any]) -> AsyncGenerator[None]:
        """Hold a slot of the train, and one of the total, while the block runs."""
        limit = self._overrides.get(train.name, train.options.concurrency_limit)
        total_limit = self._live.current.max_concurrent_runs
        if limit is None and total_limit is None:
            yield
            return
        async with self._slots_of(train).hold(limit), self._all.hold(total_limit):
            yield

    def _slots_of(self, train: Train[Any, Any]) -> RunSlots:
        return self._trains.setdefault(train.name, RunSlots())


class RunSlots:
    """A fair semaphore across event loops and threads, with a limit that may change."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._taken = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = Lock()

    @asynccontextmanager
    async def hold(self, limit: int | None) -> AsyncGenerator[None]:
        """Hold a slot while the block runs. None: no limit. `limit` may differ from call to call."""
        outer = _slots_in_use.get()
        if limit is None or self in outer:
            yield
            return
        await self._acquire(limit)
        token = _slots_in_use.set(outer | {self})
        try:
            yield
        finally:
            _slots_in_use.reset(token)
            self._release()

    async def _acquire(self, limit: int) -> None:
        with self._lock:
            self._limit = limit
            if self._taken < limit and not self._waiting:
                self._taken += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise

    def _abandon(self, waiter: _Waiter) -> None:
        """The caller was cancelled. If it got the slot at the same moment, pass the slot on."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        self._release()

    def _release(self) -> None:
        with self._lock:
            self._taken -= 1
            while self._waiting and (self._limit is None or self._taken < self._limit):
                if self._waiting.popleft().wake():
                    self._taken += 1


class _Waiter:
    """A caller that waits for a slot in its own event loop."""

    __slots__ = ("_loop", "turn")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turn = self._loop.create_future()

    def wake(self) -> bool:
        """Wake the caller, from any thread; False when its event loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._end_wait)
        except RuntimeError:
            return False
        return True

    def _end_wait(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)
