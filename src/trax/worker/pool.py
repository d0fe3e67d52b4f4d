"""The slots of a worker: run a limited number of jobs at once, stop those that time out, collect results."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from trax.clock import is_set_within
from trax.train.context import DaemonThreads, use_threads
from trax.worker.active_run import ActiveRun, JobT, continue_in_context
from trax.worker.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextvars import Context

logger = logging.getLogger(__name__)
START_SLICE = 32
"""Number of jobs that start before other tasks and threads get their turn."""

MEASURED = -1
"""Stands for the jobs left in a slice that is over, once its pace was measured."""

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

RESTART_SECONDS = 1.0
"""How long after a slot has failed outside of its jobs another one starts."""

BACKLOG_SECONDS = 0.05
"""How much work the backlog may hold: as many jobs as end in this time, by the rate of the last fetch, and
for free slots as many as can begin in it."""

MAX_WAIT_SECONDS = 0.1
"""How long a job waits in the backlog at most; then it is given back, unless it is about to begin."""

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
    slot is lost. Jobs without a free slot wait in a backlog, by rank and then in the given order. It holds no
    more than ends in `BACKLOG_SECONDS`; `on_given_back` receives the jobs that waited for too long, unless it
    `keeps_waiting`, and those that waited while `may_start` was false, with the reason. `on_dropped` receives
    the result of an abandoned run, which is not collected. `has_busy_threads` tells whether threads of the
    store need the interpreter.
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
        on_given_back: Callable[[list[JobT], str], None] = lambda _jobs, _reason: None,
        may_start: Callable[[], bool] = lambda: True,
        has_busy_threads: Callable[[], bool] = lambda: True,
        default_timeout: Callable[[], float],
        keeps_waiting: bool = False,
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
        self._on_given_back = on_given_back
        self._may_start = may_start
        self._has_busy_threads = has_busy_threads
        self._default_timeout = default_timeout
        self._keeps_waiting = keeps_waiting
        self._clock = clock
        self._active: dict[int, ActiveRun[JobT]] = {}
        self._backlog: deque[tuple[JobT, float]] = deque()
        """The jobs that wait, each with the time since when."""
        self._backlog_check: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy_slots = 0
        """Slots that are about to start a job: they take what is in the backlog."""
        self._slice_left = START_SLICE
        self._slice_began = 0.0
        self._start_seconds = 0.0
        """How long the event loop was busy with each job that started in the last slice."""
        self._timeout = 0.0
        """The default timeout, as of the last slice."""
        self._is_loop_gone = self._is_failing = False
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
        """How many jobs to fetch that start at once: the free slots, minus the backlog.

        Jobs that compute start one after the other: no more than start within `BACKLOG_SECONDS`.
        """
        return max(0, min(self.free, self._startable) - len(self._backlog))

    @property
    def backlog_to_fill(self) -> int:
        """How many jobs to fetch that wait for a slot."""
        return max(0, self.prefetch - max(0, len(self._backlog) - min(self.free, self._startable)))

    @property
    def has_enough_backlog(self) -> bool:
        """Whether slots are being filled and the backlog is larger than the prefetch.

        This lasts a moment; `on_backlog_low` is called when it ends.
        """
        return len(self._backlog) > self.prefetch and self.free > 0

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
        return [*self._active, *(job.metadata_id for job, _ in self._backlog)]

    @property
    def trains(self) -> list[str]:
        """The trains of active runs and of the backlog, one element for each."""
        waiting = (job.train for job, _ in self._backlog)
        return [*(run.job.train for run in self._active.values()), *waiting]

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

    def adjust_prefetch(self, ended: int, *, per_second: float = math.inf, ran_dry: bool = False) -> None:
        """Set the prefetch to the number of runs that end during a fetch; double it if all had ended before.

        It falls by half at most, since fetch times vary, but holds no more than ends in `BACKLOG_SECONDS`.
        For long jobs it is 0: another worker may have a free slot sooner.
        """
        expected = max(ended, self.prefetch // 2)
        if ran_dry:
            expected = max(expected, 2 * self.prefetch)
        most = max(self._size, MAX_PREFETCH) if ran_dry or self.prefetch > self._size else self._size
        expected = int(min(expected, most, per_second * BACKLOG_SECONDS))
        self.prefetch = expected if expected * PREFETCH_DIVISOR >= self._size else 0

    def add(self, jobs: Sequence[JobT]) -> None:
        """Add jobs to the backlog; slots take them from the next loop iteration on."""
        if not jobs:
            return
        self._idle.clear()
        now, backlog = self._clock(), self._backlog
        is_urgent = bool(backlog) and jobs[0].rank > backlog[-1][0].rank
        backlog.extend([(job, now) for job in jobs])
        if is_urgent:
            self._backlog = deque(sorted(backlog, key=lambda waiting: waiting[0].rank, reverse=True))
        self._start_slots()
        if self._backlog_check is None:
            self._check_backlog_later()

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

    def remove(self, metadata_id: int) -> JobT | None:
        """Remove a job from the backlog; None if it has started, or is unknown."""
        for waiting in self._backlog:
            if waiting[0].metadata_id == metadata_id:
                self._backlog.remove(waiting)
                self._set_if_idle()
                return waiting[0]
        return None

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
        self._set_if_idle()
        return [run.job for run in abandoned]

    def release(self) -> list[JobT]:
        """Empty the backlog; returns its jobs, which have not started."""
        released = [job for job, _ in self._backlog]
        self._backlog.clear()
        self._set_if_idle()
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
        if self._backlog_check is not None:
            self._backlog_check.cancel()
        self._threads.shutdown()

    @property
    def _startable(self) -> int:
        """How many jobs can start within `BACKLOG_SECONDS`, at the pace of the last slice; at least one."""
        if self._start_seconds * self._size <= BACKLOG_SECONDS:
            return self._size
        return max(1, int(BACKLOG_SECONDS / self._start_seconds))

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
        try:
            await self._run_jobs()
        except GeneratorExit:  # the event loop is gone
            self._is_loop_gone = True
            raise
        except Exception:
            logger.exception("pool: a slot failed outside of its jobs; another one starts")
            self._is_failing = True
            task = asyncio.current_task()
            for run in self.runs:  # the worker finds that it holds this run without running it
                if run.task is task:
                    del self._active[run.metadata_id]
        finally:
            self._busy_slots -= 1
            self._end_slot()

    async def _run_jobs(self) -> None:
        """Execute jobs until the backlog is empty, all slots are in use, or its task is no longer its own.

        A cancelled job ends its slot: code that swallows the cancellation must not pass it on to the next. So
        does a job that has left a reference to the task somewhere, such as a timer that will cancel it.
        A job that never waits ends in its first step, without another coroutine around it.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        active, execute, copy_of_context = self._active, self._execute, self._context.copy
        own_references = sys.getrefcount(task)
        while self._backlog and len(active) < self._size:
            now = self._clock()
            if self._is_slice_over(now):
                if self._busy_slots > 1:
                    return
                await asyncio.sleep(0)
                continue
            run = self._next_run(task, now)
            context = copy_of_context()
            try:
                steps = execute(run)
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
            is_stopped = run.is_stop_requested or task.cancelling()
            del run, context  # they refer to the task
            if is_stopped or sys.getrefcount(task) > own_references:
                return

    def _end_slot(self) -> None:
        if self._is_loop_gone:
            return
        if self._is_failing:
            self._is_failing = False
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._start_slots)
        else:
            self._start_slots()
        self._announce_results()
        self._set_if_idle()

    def _set_if_idle(self) -> None:
        if self.is_idle:
            self._idle.set()

    def _check_backlog_later(self) -> None:
        self._backlog_check = asyncio.get_running_loop().call_later(MAX_WAIT_SECONDS, self._check_backlog)

    def _check_backlog(self) -> None:
        self._backlog_check = None
        self._shorten_backlog(self._clock())
        if self._backlog:
            self._check_backlog_later()

    def _shorten_backlog(self, now: float) -> None:
        """Give jobs back if the first has waited for too long, all but those that free slots start next.

        After a pause of the process its runs may be others' now: then all are given back.
        """
        if not self._backlog or now - self._backlog[0][1] < MAX_WAIT_SECONDS:
            return
        if not self._may_start():
            self._give_back(0, "its worker missed its heartbeat")
        elif not self.free and not self._keeps_waiting:
            self._give_back(0, "no slot became free in its worker")
        elif not self._keeps_waiting:
            self._give_back(self._startable, "its worker was busy and could not begin it")

    def _give_back(self, kept: int, reason: str) -> None:
        self.prefetch = 0
        jobs = [self._backlog.pop()[0] for _ in range(len(self._backlog) - kept)]
        if jobs:
            self._on_given_back(jobs[::-1], reason)
            self._set_if_idle()

    def _is_slice_over(self, now: float) -> bool:
        """Whether this loop iteration has started enough jobs; counts one more if not."""
        left = self._slice_left
        if left == START_SLICE:
            self._shorten_backlog(now)
            if not self._backlog:
                return True
            self._slice_began, self._timeout = now, self._default_timeout()
            asyncio.get_running_loop().call_soon(self._begin_slice)
        if left > 0 and now - self._slice_began < SLICE_SECONDS:
            self._slice_left = left - 1
            return False
        self._measure_slice(now)
        return True

    def _measure_slice(self, now: float) -> None:
        """Measure once for each slice: at its end, or before the next one."""
        if self._slice_left >= 0:
            self._start_seconds = (now - self._slice_began) / max(1, START_SLICE - self._slice_left)
            self._slice_left = MEASURED

    def _begin_slice(self) -> None:
        """Begin a slice in the next loop iteration, after other threads have run.

        Threads of the store fetch the next jobs and write results; others execute synchronous junctions. The
        loop releases the interpreter only briefly, and would take it back before a waiting thread wakes up.
        So it pauses, but only if a thread may be busy: otherwise the pause would only delay the next jobs.
        """
        self._measure_slice(self._clock())
        self._slice_left = START_SLICE  # first: slots wait for it, whatever happens below
        if self._active or self._has_busy_threads():
            time.sleep(THREADS_TURN_SECONDS)
        if self._clock() - self._slice_began >= SLICE_SECONDS:
            self._announce_results()

    def _next_run(self, task: asyncio.Task[None], now: float) -> ActiveRun[JobT]:
        backlog = self._backlog
        was_stocked = len(backlog) > self.prefetch
        job, since = backlog.popleft()
        seconds = job.timeout_seconds
        if seconds is None:
            seconds = self._timeout
        run = ActiveRun(job, now + seconds, seconds, task)
        run.backlog_seconds = now - since
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
            return await continue_in_context(context, steps, waits_for)
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
