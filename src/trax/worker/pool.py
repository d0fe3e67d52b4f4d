"""The slots of a worker: run a limited number of jobs at once, stop those that time out, collect results."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from trax.clock import is_set_within
from trax.train import Cancellation
from trax.train.threads import DaemonThreads, use_threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


class Job(Protocol):
    """Something to run, identified by the id of its record."""

    @property
    def metadata_id(self) -> int: ...
    @property
    def train(self) -> str: ...
    @property
    def timeout_seconds(self) -> float | None: ...


JobT = TypeVar("JobT", bound=Job)


class ActiveRun(Generic[JobT]):
    """A job and what is needed to stop it. `next_check_at` is a time of the pool's clock."""

    __slots__ = ("job", "next_check_at", "seconds", "task", "token")

    def __init__(self, job: JobT, next_check_at: float, seconds: float) -> None:
        self.job = job
        self.seconds = seconds
        self.next_check_at = next_check_at
        self.token = Cancellation()
        self.task: asyncio.Task[Any] | None = None

    @property
    def extra(self) -> dict[str, Any]:
        """The `extra` of log records about this run."""
        return {"train": self.job.train, "metadata_id": self.job.metadata_id}

    def __str__(self) -> str:
        return f"run {self.job.metadata_id} of train {self.job.train!r}"


logger = logging.getLogger(__name__)

STOP_WARNING_SECONDS = 5.0
"""How long a run may take to stop before a warning is logged."""


class Deadlines:
    """Cancels runs that time out, and logs those that do not stop. A run that ends in time costs nothing."""

    def __init__(self, running: Mapping[int, ActiveRun[Any]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def schedule_sweep(self, moment: float) -> None:
        """Sweep at this moment at the latest."""
        if moment < self._next:
            self._set_timer(moment)

    def expect_stop(self, run: ActiveRun[Any]) -> None:
        """Check later whether a cancelled run has stopped."""
        run.next_check_at = self._clock() + STOP_WARNING_SECONDS
        self.schedule_sweep(run.next_check_at)

    def sweep(self) -> None:
        """Check every run whose deadline has passed."""
        now = self._clock()
        for run in list(self._running.values()):
            if run.next_check_at <= now:
                self._check(run)
        self._set_timer(min((run.next_check_at for run in self._running.values()), default=math.inf))

    def close(self) -> None:
        self._set_timer(math.inf)

    def _check(self, run: ActiveRun[Any]) -> None:
        if not run.token.requested:
            run.token.cancel(f"timed out after {run.seconds:g} s", timed_out=True)
            run.next_check_at = self._clock() + STOP_WARNING_SECONDS
            return
        run.next_check_at = math.inf  # one warning is enough
        logger.warning(
            "%s has not stopped (%s); it keeps its slot until it ends. Synchronous code must check "
            "current().cancelled, and no code may swallow CancelledError",
            run,
            run.token.reason,
            extra=run.extra,
        )

    def _set_timer(self, moment: float) -> None:
        self._next = moment
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment < math.inf:
            delay = max(0.0, moment - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self.sweep)


START_SLICE = 32
"""Number of jobs started at once, so that other tasks can run in between."""

RESULTS_PER_WRITE = 256
"""Number of results that are written at once, even if more are about to come."""

PREFETCH_DIVISOR = 8
"""No prefetch if fewer than 1/8 of the slots become free during a fetch."""

ResultT = TypeVar("ResultT")


class Load(NamedTuple):
    """Slots, active runs, and claimed runs that wait for a slot."""

    slots: int
    running: int
    prefetched: int


class Pool(Generic[JobT, ResultT]):
    """Runs jobs as tasks of one event loop, each with a time limit.

    `execute` returns the result of a job. If it raises, `to_failure` builds a result from the error, so no
    slot is lost. Jobs without a free slot wait in a backlog, in the given order. `on_dropped` receives the
    result of an abandoned run, which is not collected.
    """

    def __init__(
        self,
        size: int,
        execute: Callable[[JobT, Cancellation], Awaitable[ResultT]],
        to_failure: Callable[[JobT, BaseException], ResultT],
        *,
        on_ended: Callable[[], None],
        on_started: Callable[[], None] = lambda: None,
        on_backlog_low: Callable[[], None] = lambda: None,
        on_dropped: Callable[[ResultT], None] = lambda _: None,
        default_timeout: Callable[[], float],
        prefetch: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size = size
        self.prefetch = prefetch
        """How many jobs may wait in the backlog, so that a free slot is filled at once."""
        self._execute = execute
        self._to_failure = to_failure
        self._on_ended = on_ended
        self._on_started = on_started
        self._on_backlog_low = on_backlog_low
        self._on_dropped = on_dropped
        self._default_timeout = default_timeout
        self._clock = clock
        self._active: dict[int, ActiveRun[JobT]] = {}
        self._backlog: deque[JobT] = deque()
        self._is_beginning = False
        self.ended_count = 0
        """Total number of ended runs."""
        self._results: list[ResultT] = []
        self._is_announced = False
        """Whether `on_ended` was called since the last `collect`."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._deadlines = Deadlines(self._active, clock)
        self._threads = DaemonThreads("trax-run")
        self._context = copy_context()  # each run gets a copy, so its context variables are its own
        self._context.run(use_threads, self._threads)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return max(0, self._size - len(self._active))

    @property
    def slots_to_fill(self) -> int:
        """How many jobs to fetch: free slots plus prefetch, minus the backlog."""
        return max(0, self.free + self.prefetch - len(self._backlog))

    @property
    def has_enough_backlog(self) -> bool:
        """Whether slots are being filled and the backlog is larger than the prefetch.

        This lasts a moment; `on_backlog_low` is called when it ends.
        """
        return len(self._backlog) > self.prefetch and self.free > 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def load(self) -> Load:
        """The current load. Thread-safe."""
        return Load(self._size, len(self._active), len(self._backlog))

    @property
    def active_ids(self) -> frozenset[int]:
        return frozenset(self._active)

    @property
    def job_ids(self) -> list[int]:
        """The ids of active runs and of the backlog."""
        return [*self._active, *(job.metadata_id for job in self._backlog)]

    @property
    def results(self) -> Sequence[ResultT]:
        """The results that are not collected yet."""
        return self._results

    @property
    def runs(self) -> list[ActiveRun[JobT]]:
        """The active runs. Thread-safe."""
        return list(self._active.values())

    def resize(self, size: int) -> None:
        """Change the number of slots. Active runs above the new number run to their end."""
        self._size = size
        self._begin_backlog()

    def adjust_prefetch(self, ended: int) -> None:
        """Set the prefetch to the number of runs that end during a fetch.

        It falls by half at most, since fetch times vary. For long jobs it is 0: another worker may have a
        free slot sooner.
        """
        expected = max(ended, self.prefetch // 2)
        self.prefetch = min(expected, self._size) if expected * PREFETCH_DIVISOR >= self._size else 0

    def add(self, jobs: Sequence[JobT]) -> None:
        """Add jobs to the backlog and fill the slots: one slice now, the rest in later loop iterations."""
        if jobs:
            self._idle.clear()
            self._backlog.extend(jobs)
            self._begin_backlog()

    async def start(self, jobs: Sequence[JobT]) -> None:
        """The same, and wait until the slots are filled."""
        self.add(jobs)
        await asyncio.sleep(0)
        while self._is_beginning:  # noqa: ASYNC110 - each loop iteration starts a slice
            await asyncio.sleep(0)

    def collect(self) -> list[ResultT]:
        """Take the results since the last call."""
        ended, self._results, self._is_announced = self._results, [], False
        return ended

    def put_back(self, results: Sequence[ResultT]) -> None:
        """Return results that could not be written, for the next `collect`."""
        self._results[:0] = results

    def cancel(self, metadata_id: int, reason: str, *, timed_out: bool = False) -> None:
        """Cancel a run; no effect if it has ended or was cancelled before."""
        run = self._active.get(metadata_id)
        if run is not None and not run.token.requested:
            run.token.cancel(reason, timed_out=timed_out)
            self._deadlines.expect_stop(run)

    def interrupt_all(self, reason: str) -> None:
        """Interrupt all active runs: they stop and run again later."""
        for run in self.runs:
            if not run.token.requested:
                run.token.interrupt(reason)
                self._deadlines.expect_stop(run)

    def abandon_all(self, reason: str) -> list[JobT]:
        """Free the slots of all active runs and ignore their results; returns their jobs."""
        abandoned = self.runs
        self._active.clear()
        for run in abandoned:
            run.token.abandon(reason)
        if not self._backlog:
            self._idle.set()
        return [run.job for run in abandoned]

    def release(self) -> list[JobT]:
        """Empty the backlog; returns its jobs, which have not started."""
        released = list(self._backlog)
        self._backlog.clear()
        if not self._active:
            self._idle.set()
        return released

    def sweep(self) -> None:
        """Stop runs that have timed out. A timer does this too."""
        self._deadlines.sweep()

    async def wait_until_idle(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs; False if that takes longer than `seconds`."""
        return await is_set_within(self._idle, seconds)

    def close(self) -> None:
        """Release the threads and the timer, without waiting for active runs."""
        self._deadlines.close()
        self._threads.shutdown()

    def _begin_backlog(self) -> None:
        """Start one slice per loop iteration, also if jobs are added meanwhile."""
        if self._backlog and not self._is_beginning:
            self._begin_slice()

    def _begin_slice(self) -> None:
        self._begin_next(START_SLICE)
        self._is_beginning = bool(self._backlog) and self.free > 0
        if self._is_beginning:
            asyncio.get_running_loop().call_soon(self._begin_slice)
        elif self._results:
            self._announce_results()

    def _begin_next(self, limit: int) -> None:
        count, was_stocked = min(limit, self.free, len(self._backlog)), self.has_enough_backlog
        if count:
            self._begin([self._backlog.popleft() for _ in range(count)])
        if was_stocked and not self.has_enough_backlog:
            self._on_backlog_low()

    def _begin(self, jobs: Sequence[JobT]) -> None:
        default, now, running = self._default_timeout(), self._clock(), self._active
        create_task, fresh = asyncio.get_running_loop().create_task, self._context.copy
        self._idle.clear()
        soonest = math.inf
        for job in jobs:
            seconds = default if job.timeout_seconds is None else job.timeout_seconds
            running[job.metadata_id] = run = ActiveRun(job, now + seconds, seconds)
            soonest = min(soonest, run.next_check_at)
            run.task = create_task(self._run(run), name=f"trax run {job.metadata_id}", context=fresh())
        self._deadlines.schedule_sweep(soonest)
        self._on_started()

    async def _run(self, run: ActiveRun[JobT]) -> None:
        job = run.job
        try:
            ended = await self._execute(job, run.token)
        except BaseException as error:  # noqa: BLE001 - becomes the result: a slot is never lost
            ended = self._to_failure(job, error)
        if self._active.get(job.metadata_id) is not run:
            self._on_dropped(ended)  # abandoned: it already has a result
            return
        self._results.append(ended)
        self.ended_count += 1
        del self._active[job.metadata_id]
        if self._backlog:
            if not self._is_beginning:
                self._begin_next(1)
        elif not self._active:
            self._idle.set()
        self._announce_results()

    def _announce_results(self) -> None:
        """Call `on_ended` once per `collect`; while slices start, only for many results."""
        if not self._is_announced and (not self._is_beginning or len(self._results) >= RESULTS_PER_WRITE):
            self._is_announced = True
            self._on_ended()
