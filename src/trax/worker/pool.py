"""The slots of a worker: run a limited number of jobs at once, stop those that time out, collect results."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextvars import copy_context
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from trax.clock import format_duration, is_set_within
from trax.train.context import DaemonThreads, use_threads
from trax.worker.active_run import ActiveRun, JobT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
    from contextvars import Context

logger = logging.getLogger(__name__)
STOP_WARNING_SECONDS = 5.0
"""How long a run may take to stop before a warning is logged."""


class Deadlines:
    """Cancels runs that time out, and logs those that do not stop. A run that ends in time costs nothing."""

    def __init__(self, running: Mapping[int, ActiveRun[Any]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock
        self.next_at = math.inf
        """When the next sweep is."""
        self._timer: asyncio.TimerHandle | None = None

    def schedule_sweep(self, moment: float) -> None:
        """Sweep at this moment at the latest."""
        if moment < self.next_at:
            self._set_timer(moment)

    def expect_stop(self, run: ActiveRun[Any]) -> None:
        """Check later whether a cancelled run has stopped."""
        run.check_at = self._clock() + STOP_WARNING_SECONDS
        self.schedule_sweep(run.check_at)

    def sweep(self) -> None:
        """Check every run whose deadline has passed."""
        now = self._clock()
        for run in list(self._running.values()):
            if run.check_at <= now:
                self._check(run)
        self._set_timer(min((run.check_at for run in self._running.values()), default=math.inf))

    def close(self) -> None:
        self._set_timer(math.inf)

    def _check(self, run: ActiveRun[Any]) -> None:
        if not run.is_stop_requested:
            run.token.cancel(f"timed out after {format_duration(run.timeout)}", timed_out=True)
            run.check_at = self._clock() + STOP_WARNING_SECONDS
            return
        run.check_at = math.inf  # one warning is enough
        logger.warning(
            "%s has not stopped (%s); it keeps its slot until it ends. Synchronous code must check "
            "current().cancelled, and no code may swallow CancelledError",
            run,
            run.token.reason,
            extra=run.extra,
        )

    def _set_timer(self, moment: float) -> None:
        self.next_at = moment
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment < math.inf:
            delay = max(0.0, moment - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self.sweep)


START_SLICE = 32
"""Number of jobs that start before other tasks and threads get their turn."""

SLICE_SECONDS = 0.005
"""The same as a time: jobs that compute for long without awaiting start one by one."""

THREADS_TURN_SECONDS = 0.00002
"""How long the loop pauses after a slice; a waiting thread needs about as long to wake up."""

RESULTS_PER_WRITE = 256
"""Number of results that are written at once, even if more are about to come."""

PREFETCH_DIVISOR = 8
"""No prefetch if fewer than 1/8 of the slots become free during a fetch."""

MAX_PREFETCH = 1_500
"""The maximum prefetch of a pool with fewer slots, for jobs that are shorter than a fetch."""

ResultT = TypeVar("ResultT")


class Load(NamedTuple):
    """Slots, active runs, and claimed runs that wait for a slot."""

    slots: int
    running: int
    prefetched: int


class Pool(Generic[JobT, ResultT]):
    """Runs jobs in slots of one event loop, each with a time limit.

    A slot is a task that executes jobs of the backlog one by one, each with its own context variables, and
    ends when the backlog is empty. One slot is enough for jobs that never wait; when a job waits, more slots
    start. `on_started` is called once for each slice of jobs that start together.

    `execute` returns the result of a job. If it raises, `to_failure` builds a result from the error, so no
    slot is lost. Jobs without a free slot wait in a backlog, in the given order. `on_dropped` receives the
    result of an abandoned run, which is not collected. `has_busy_threads` tells whether threads of the store
    need the interpreter.
    """

    def __init__(
        self,
        size: int,
        execute: Callable[[ActiveRun[JobT]], Coroutine[Any, Any, ResultT]],
        to_failure: Callable[[JobT, BaseException], ResultT],
        *,
        on_ended: Callable[[], None],
        on_started: Callable[[], None] = lambda: None,
        on_backlog_low: Callable[[], None] = lambda: None,
        on_dropped: Callable[[ResultT], None] = lambda _: None,
        has_busy_threads: Callable[[], bool] = lambda: True,
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
        self._has_busy_threads = has_busy_threads
        self._default_timeout = default_timeout
        self._clock = clock
        self._active: dict[int, ActiveRun[JobT]] = {}
        self._backlog: deque[JobT] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy_slots = 0
        """Slots that are about to start a job: they take what is in the backlog."""
        self._slice_left = START_SLICE
        self._slice_began = 0.0
        self._timeout = 0.0
        """The default timeout, as of the last slice."""
        self._is_loop_gone = False
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
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing waits for a slot."""
        return not self._active and not self._backlog

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
        self._start_slots()

    def adjust_prefetch(self, ended: int, *, ran_dry: bool = False) -> None:
        """Set the prefetch to the number of runs that end during a fetch; double it if all had ended before.

        It falls by half at most, since fetch times vary. For long jobs it is 0: another worker may have a
        free slot sooner.
        """
        expected = max(ended, self.prefetch // 2)
        if ran_dry:
            expected = max(expected, 2 * self.prefetch)
        most = max(self._size, MAX_PREFETCH) if ran_dry or self.prefetch > self._size else self._size
        self.prefetch = min(expected, most) if expected * PREFETCH_DIVISOR >= self._size else 0

    def add(self, jobs: Sequence[JobT]) -> None:
        """Add jobs to the backlog; slots take them from the next loop iteration on."""
        if jobs:
            self._idle.clear()
            self._backlog.extend(jobs)
            self._start_slots()

    async def start(self, jobs: Sequence[JobT]) -> None:
        """The same, and wait until the slots are filled."""
        self.add(jobs)
        while self._busy_slots:  # noqa: ASYNC110 - each loop iteration starts a slice
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
        if run is not None and not run.is_stop_requested:
            run.token.cancel(reason, timed_out=timed_out)
            self._deadlines.expect_stop(run)

    def interrupt_all(self, reason: str) -> None:
        """Interrupt all active runs: they stop and run again later."""
        for run in self.runs:
            if not run.is_stop_requested:
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

    def _start_slots(self, most: int = 1) -> None:
        """Start up to `most` slots for the backlog. A busy slot needs no help until its job waits."""
        if self._busy_slots:
            return
        loop = asyncio.get_running_loop()
        for _ in range(min(most, self.free, len(self._backlog))):
            self._busy_slots += 1
            task = loop.create_task(self._run_slot(), name="trax slot", context=self._context)
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._tasks.discard)

    async def _run_slot(self) -> None:
        """Execute jobs until the backlog is empty, all slots are in use, or a job was cancelled.

        A cancelled job ends its slot: code that swallows the cancellation must not pass it on to the next.
        A job that never waits ends in its first step, without another coroutine around it.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        backlog, active, execute, copy_of_context = (
            self._backlog,
            self._active,
            self._execute,
            self._context.copy,
        )
        try:
            while backlog and len(active) < self._size:
                now = self._clock()
                if self._is_slice_over(now):
                    if self._busy_slots > 1:
                        return
                    await asyncio.sleep(0)
                    continue
                run = self._next_run(task, now)
                context, steps = copy_of_context(), execute(run)
                try:
                    waits_for = context.run(steps.send, None)
                except StopIteration as end:
                    result: ResultT = end.value
                except BaseException as error:  # noqa: BLE001 - becomes the result: a slot is never lost
                    result = self._to_failure(run.job, error)
                else:
                    result = await self._wait_for_run(run, context, steps, waits_for)
                if active.get(run.metadata_id) is run:
                    del active[run.metadata_id]
                    self._add_result(result)
                else:
                    self._on_dropped(result)  # abandoned: it already has a result
                if run.is_stop_requested or task.cancelling():
                    return
        except GeneratorExit:  # the event loop is gone
            self._is_loop_gone = True
            raise
        finally:
            self._busy_slots -= 1
            self._end_slot()

    def _end_slot(self) -> None:
        if self._is_loop_gone:
            return
        self._start_slots()
        self._announce_results()
        if not (self._active or self._backlog):
            self._idle.set()

    def _is_slice_over(self, now: float) -> bool:
        """Whether this loop iteration has started enough jobs; counts one more if not."""
        left = self._slice_left
        if left == START_SLICE:
            self._slice_began, self._timeout = now, self._default_timeout()
            asyncio.get_running_loop().call_soon(self._begin_slice)
        if left and now - self._slice_began < SLICE_SECONDS:
            self._slice_left = left - 1
            return False
        self._slice_left = 0
        return True

    def _begin_slice(self) -> None:
        """Begin a slice in the next loop iteration, after other threads have run.

        Threads of the store fetch the next jobs and write results; others execute synchronous junctions. The
        loop releases the interpreter only briefly, and would take it back before a waiting thread wakes up.
        So it pauses, but only if a thread may be busy: otherwise the pause would only delay the next jobs.
        """
        if self._active or self._has_busy_threads():
            time.sleep(THREADS_TURN_SECONDS)
        if self._clock() - self._slice_began >= SLICE_SECONDS:
            self._announce_results()
        self._slice_left = START_SLICE

    def _next_run(self, task: asyncio.Task[None], now: float) -> ActiveRun[JobT]:
        backlog = self._backlog
        was_stocked = len(backlog) > self.prefetch
        job = backlog.popleft()
        seconds = job.timeout_seconds
        if seconds is None:
            seconds = self._timeout
        run = ActiveRun(job, now + seconds, seconds, task)
        self._active[run.metadata_id] = run
        if run.check_at < self._deadlines.next_at:
            self._deadlines.schedule_sweep(run.check_at)
        if self._slice_left == START_SLICE - 1:
            self._on_started()
        if was_stocked and not self.has_enough_backlog:
            self._on_backlog_low()
        return run

    def _add_result(self, result: ResultT) -> None:
        self._results.append(result)
        self.ended_count += 1
        if len(self._results) >= RESULTS_PER_WRITE:
            self._announce_results()

    async def _wait_for_run(
        self, run: ActiveRun[JobT], context: Context, steps: Coroutine[Any, Any, ResultT], waits_for: Any
    ) -> ResultT:
        self._busy_slots -= 1
        self._start_slots(START_SLICE)
        if not self._busy_slots:
            self._announce_results()
        try:
            return await _continue_in_context(context, steps, waits_for)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - becomes the result: a slot is never lost
            return self._to_failure(run.job, error)
        finally:
            self._busy_slots += 1

    def _announce_results(self) -> None:
        """Call `on_ended` once per `collect`."""
        if self._results and not self._is_announced:
            self._is_announced = True
            self._on_ended()


@coroutine
def _continue_in_context(
    context: Context, steps: Coroutine[Any, Any, ResultT], waits_for: Any
) -> Generator[Any, Any, ResultT]:
    """Await the rest of a coroutine that waits for something, each of its steps in this context."""
    while True:
        step, argument = steps.send, None
        try:
            argument = yield waits_for
        except BaseException as error:  # noqa: BLE001 - the coroutine decides what it means
            step, argument = steps.throw, error
        try:
            waits_for = context.run(step, argument)
        except StopIteration as end:
            return end.value
