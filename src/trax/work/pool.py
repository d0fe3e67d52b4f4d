"""Slots: so many runs at once, refilled as they free, their endings kept for whoever writes them down."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from trax.clock import is_set_within
from trax.train.threads import DaemonThreads, use_threads
from trax.work.deadlines import Deadlines
from trax.work.running import JobT, Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.train import Cancellation

SLICE = 32
"""Jobs are started in slices, so that others get their turn on the loop in between."""

MANY = 256
"""So many endings are worth a trip to the database, also when more are about to come."""

FEW = 8
"""Less than this part of the slots ending meanwhile is nothing to prepare for."""

EndedT = TypeVar("EndedT")


class Load(NamedTuple):
    """How many slots there are, how many runs are in them, and how many were taken that wait for one."""

    slots: int
    running: int
    prefetched: int


class Pool(Generic[JobT, EndedT]):
    """Runs jobs as tasks of one event loop, each within its time.

    `execute` answers how a job ended. Should it raise all the same, `failed` makes an ending of that: a slot
    is never lost. More jobs than there are slots wait in a backlog, in the order given.
    """

    def __init__(
        self,
        size: int,
        execute: Callable[[JobT, Cancellation], Awaitable[EndedT]],
        failed: Callable[[JobT, BaseException], EndedT],
        *,
        on_ended: Callable[[], None],
        on_begun: Callable[[], None] = lambda: None,
        on_short: Callable[[], None] = lambda: None,
        default_timeout: Callable[[], float],
        prefetch: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size = size
        self.prefetch = prefetch
        """How many may wait for a slot, so that one that frees is filled at once."""
        self._execute = execute
        self._failed = failed
        self._on_ended = on_ended
        self._on_begun = on_begun
        self._on_short = on_short
        self._default_timeout = default_timeout
        self._clock = clock
        self._running: dict[int, Running[JobT]] = {}
        self._backlog: deque[JobT] = deque()
        self._is_beginning = False
        self.ended_count = 0
        """How many have ended, ever."""
        self._ended: list[EndedT] = []
        self._is_told = False
        """Whether somebody was told of endings and has not come for them yet."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._deadlines = Deadlines(self._running, clock)
        self._threads = DaemonThreads("trax-run")
        self._context = copy_context()  # each run begins with a copy: what one sets, no other sees
        self._context.run(use_threads, self._threads)

    @property
    def free(self) -> int:
        """How many slots nothing runs in."""
        return max(0, self._size - len(self._running))

    @property
    def wanted(self) -> int:
        """How many jobs there is use for: the free slots, and what may wait for the next one."""
        return max(0, self.free + self.prefetch - len(self._backlog))

    @property
    def is_stocked(self) -> bool:
        """Whether slots are being filled, and more wait in line than end while others are fetched.

        That is over in a moment, and `on_short` says when.
        """
        return len(self._backlog) > self.prefetch and self.free > 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def load(self) -> Load:
        """How busy it is at this moment. Any thread may ask."""
        return Load(self._size, len(self._running), len(self._backlog))

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self._running)

    @property
    def known(self) -> list[int]:
        """What runs, and what waits to."""
        return [*self._running, *(job.metadata_id for job in self._backlog)]

    @property
    def ended(self) -> Sequence[EndedT]:
        """The endings that nobody has collected."""
        return self._ended

    @property
    def runs(self) -> list[Running[JobT]]:
        """What runs at this moment. Any thread may ask."""
        return list(self._running.values())

    def resize(self, size: int) -> None:
        """Have so many slots from now on. What runs in one too many runs to its end."""
        self._size = size
        self._begin_backlog()

    def foresee(self, ended: int) -> None:
        """So many end while new ones are fetched: as many may wait in line the next time.

        The number falls by halves, since one fetch may take longer than the next. Where jobs take their time
        it is nothing: another worker may have a slot for them sooner.
        """
        expected = max(ended, self.prefetch // 2)
        self.prefetch = min(expected, self._size) if expected * FEW >= self._size else 0

    def add(self, jobs: Sequence[JobT]) -> None:
        """Take these on: what fits begins, a slice at once and the rest in the turns of the loop to come."""
        if jobs:
            self._idle.clear()
            self._backlog.extend(jobs)
            self._begin_backlog()

    async def start(self, jobs: Sequence[JobT]) -> None:
        """The same, and wait until all that fits has begun."""
        self.add(jobs)
        await asyncio.sleep(0)
        while self._is_beginning:  # noqa: ASYNC110 - each turn of the loop begins a slice
            await asyncio.sleep(0)

    def collect(self) -> list[EndedT]:
        """The endings since the last time."""
        ended, self._ended, self._is_told = self._ended, [], False
        return ended

    def put_back(self, ended: Sequence[EndedT]) -> None:
        """Keep endings that could not be written for the next time."""
        self._ended[:0] = ended

    def cancel(self, metadata_id: int, reason: str, *, timed_out: bool = False) -> None:
        """Ask a run to stop; nothing happens if it has ended meanwhile, or was asked before."""
        run = self._running.get(metadata_id)
        if run is not None and not run.token.requested:
            run.token.cancel(reason, timed_out=timed_out)
            self._deadlines.asked_to_stop(run)

    def interrupt_all(self, reason: str) -> None:
        """Ask all runs to stop and to be run again later."""
        for run in self.runs:
            if not run.token.requested:
                run.token.interrupt(reason)
                self._deadlines.asked_to_stop(run)

    def abandon_all(self, reason: str) -> list[JobT]:
        """Give up what runs: its slots are free, and how it ends is nobody's concern. Returns those jobs."""
        abandoned = self.runs
        self._running.clear()
        for run in abandoned:
            run.token.abandon(reason)
        if not self._backlog:
            self._idle.set()
        return [run.job for run in abandoned]

    def release(self) -> list[JobT]:
        """Give up the backlog: these jobs have not begun, and will not."""
        released = list(self._backlog)
        self._backlog.clear()
        if not self._running:
            self._idle.set()
        return released

    def sweep(self) -> None:
        """Stop what has run out of time. Comes by itself when it is time."""
        self._deadlines.sweep()

    async def drained(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs any more; False when that took longer than it may."""
        return await is_set_within(self._idle, seconds)

    def close(self) -> None:
        """Let go of the threads and the timer; what still runs goes on, and is not waited for."""
        self._deadlines.close()
        self._threads.shutdown()

    def _begin_backlog(self) -> None:
        """One slice a turn, also when more is added while slices begin."""
        if self._backlog and not self._is_beginning:
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._begin_next(SLICE)
        self._is_beginning = bool(self._backlog) and self.free > 0
        if self._is_beginning:
            asyncio.get_running_loop().call_soon(self._begin_slice)
        elif self._ended:
            self._tell_of_endings()

    def _begin_next(self, most: int) -> None:
        count, was_stocked = min(most, self.free, len(self._backlog)), self.is_stocked
        if count:
            self._begin([self._backlog.popleft() for _ in range(count)])
        if was_stocked and not self.is_stocked:
            self._on_short()

    def _begin(self, jobs: Sequence[JobT]) -> None:
        default, now, running = self._default_timeout(), self._clock(), self._running
        create_task, fresh = asyncio.get_running_loop().create_task, self._context.copy
        self._idle.clear()
        soonest = math.inf
        for job in jobs:
            seconds = default if job.timeout_seconds is None else job.timeout_seconds
            running[job.metadata_id] = run = Running(job, now + seconds, seconds)
            soonest = min(soonest, run.look_at)
            run.task = create_task(self._run(run), name=f"trax run {job.metadata_id}", context=fresh())
        self._deadlines.note(soonest)
        self._on_begun()

    async def _run(self, run: Running[JobT]) -> None:
        job = run.job
        try:
            ended = await self._execute(job, run.token)
        except BaseException as error:  # noqa: BLE001 - becomes its ending: a slot is never lost
            ended = self._failed(job, error)
        if self._running.get(job.metadata_id) is not run:
            return  # it was abandoned, and another ending stands for it
        self._ended.append(ended)
        self.ended_count += 1
        del self._running[job.metadata_id]
        if self._backlog:
            if not self._is_beginning:
                self._begin_next(1)
        elif not self._running:
            self._idle.set()
        self._tell_of_endings()

    def _tell_of_endings(self) -> None:
        """Once: whoever comes finds the others too. Short jobs that begin in many slices also end in many."""
        if not self._is_told and (not self._is_beginning or len(self._ended) >= MANY):
            self._is_told = True
            self._on_ended()
