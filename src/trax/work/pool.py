"""Slots: so many runs at once, refilled as they free, their endings kept for whoever writes them down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from trax.train import Cancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SLICE = 32
"""Jobs are started in slices, so that others get their turn on the loop in between."""


class Job(Protocol):
    """Something to run, known by the id of its record."""

    @property
    def metadata_id(self) -> int: ...


JobT = TypeVar("JobT", bound=Job)
EndedT = TypeVar("EndedT")


class Pool(Generic[JobT, EndedT]):
    """Runs jobs as tasks of one event loop. `execute` must not raise: how a job ended is its answer."""

    def __init__(
        self,
        size: int,
        execute: Callable[[JobT, Cancellation], Awaitable[EndedT]],
        on_ended: Callable[[], None],
    ) -> None:
        self._size = size
        self._execute = execute
        self._on_ended = on_ended
        self._running: dict[int, tuple[asyncio.Task[Any], Cancellation]] = {}
        self._ended: list[EndedT] = []
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def free(self) -> int:
        return self._size - len(self._running)

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self._running)

    async def start(self, jobs: Sequence[JobT]) -> None:
        for number, job in enumerate(jobs, start=1):
            token = Cancellation()
            task = asyncio.create_task(self._run(job, token), name=f"trax run {job.metadata_id}")
            self._running[job.metadata_id] = task, token
            self._idle.clear()
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def collect(self) -> list[EndedT]:
        """The endings since the last time."""
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, metadata_id: int, reason: str) -> None:
        """Ask a run to stop; nothing happens if it has ended meanwhile."""
        if metadata_id in self._running:
            self._running[metadata_id][1].cancel(reason)

    def interrupt_all(self, reason: str) -> None:
        """Ask all runs to stop and to be run again later."""
        for _, token in list(self._running.values()):
            token.interrupt(reason)

    async def drained(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs any more; False when that took longer than it may."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _run(self, job: JobT, token: Cancellation) -> None:
        ended = await self._execute(job, token)
        self._ended.append(ended)
        del self._running[job.metadata_id]
        if not self._running:
            self._idle.set()
        self._on_ended()
