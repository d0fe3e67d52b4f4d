"""How many runs `app.run` carries out at once in this process. Who comes too many waits in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from trax.errors import DefinitionError, shown
from trax.train.options import LIMIT, is_limit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.host.live_settings import LiveSettings
    from trax.train import Train

_held: ContextVar[frozenset[Slots]] = ContextVar("trax_held_slots", default=frozenset())
"""The slots of the runs around this code: a run inside them must not wait for its own parent."""


class RunLimits:
    """The limits of an app: of each train, and of all together."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._overrides: dict[str, int] = {}
        self._trains: dict[str, Slots] = {}
        self._all = Slots()

    def set(self, train: Train[Any, Any], limit: int) -> None:
        """Let this count for the train, whatever the train itself says."""
        if not is_limit(limit):
            raise DefinitionError(f"the limit of train {train.name!r} must be {LIMIT} (got {shown(limit)})")
        self._overrides[train.name] = limit

    @asynccontextmanager
    async def slot(self, train: Train[Any, Any]) -> AsyncGenerator[None]:
        """Hold a slot of the train, and one of all, while the block runs."""
        limit = self._overrides.get(train.name, train.options.concurrency_limit)
        in_all = self._live.now.max_concurrent_runs
        if limit is None and in_all is None:
            yield
            return
        async with self._of(train).held(limit), self._all.held(in_all):
            yield

    def _of(self, train: Train[Any, Any]) -> Slots:
        return self._trains.setdefault(train.name, Slots())


class Slots:
    """So many holders at once, first come, first served, whichever event loop they live in."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._taken = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = Lock()

    @asynccontextmanager
    async def held(self, limit: int | None) -> AsyncGenerator[None]:
        """Hold one while the block runs; None: there is no limit. `limit` may differ from call to call."""
        around = _held.get()
        if limit is None or self in around:
            yield
            return
        await self._take(limit)
        token = _held.set(around | {self})
        try:
            yield
        finally:
            _held.reset(token)
            self._give_back()

    async def _take(self, limit: int) -> None:
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
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        """A caller gave up waiting. Its turn may have come in that very moment: then the next one has it."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            self._taken -= 1
            while self._waiting and (self._limit is None or self._taken < self._limit):
                if self._waiting.popleft().call():
                    self._taken += 1


class _Waiter:
    """A caller that waits on its own loop."""

    __slots__ = ("_loop", "turn")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turn = self._loop.create_future()

    def call(self) -> bool:
        """Say that its turn has come, from any thread; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self._go)
        except RuntimeError:
            return False
        return True

    def _go(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)
