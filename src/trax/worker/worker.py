"""`Worker`: claim runs and execute them in slots; find runs that were claimed but never arrived."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from trax.engine.finish import finish, finish_plain, is_plain
from trax.errors import StoreError
from trax.events import Topic
from trax.records.states import CancelReason
from trax.records.worker import WorkerKind
from trax.store import workers
from trax.store.runs import claim, metadata
from trax.worker.active_run import STOP_REASONS
from trax.worker.app_context import ANY_WORK
from trax.worker.heartbeat import LoopWatch
from trax.worker.job_runner import JobRunner
from trax.worker.pool import Load, Pool
from trax.worker.processes import CpuProcessPool
from trax.worker.results import FollowUps, ResultWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from trax.engine.job_dispatcher import DispatchResult
    from trax.records.result import RunResult
    from trax.store import Connection, Store
    from trax.store.runs.claim import Claimed, ClaimRequest, HeldRun
    from trax.worker.active_run import ActiveRun
    from trax.worker.app_context import AppContext, WorkFilter
    from trax.worker.recorded_run import RemoteExecutor
    from trax.worker.results import WriteResults

logger = logging.getLogger(__name__)
SECOND: Final = timedelta(seconds=1)

FLUSH_PAUSES: Final = (0.2, 0.5, 1.0, 2.0)
"""Pauses between attempts to write the last results at shutdown."""

INTERRUPT_SECONDS: Final = 5.0
"""How long an interrupted run may clean up. After that its thread is abandoned."""


class Worker:
    """The slots of one process. Each operation is one short transaction."""

    kind: ClassVar = WorkerKind.WORKER
    _executor: RemoteExecutor | None = None
    _keeps_waiting: ClassVar = False
    """Whether runs wait for a slot however long that takes: no other worker would get them."""

    def __init__(
        self,
        context: AppContext,
        store: Store,
        worker_id: int,
        slots: int,
        *,
        is_adjustable: bool = False,
        dispatches: bool = False,
        work_filter: WorkFilter = ANY_WORK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = worker_id
        self._context = context
        self._store = store
        self._slots = slots
        self._is_adjustable = is_adjustable
        self._dispatches = dispatches
        self._work_filter = work_filter
        self._clock = clock
        self._last_heartbeat_at = clock()
        self._process_count = min(slots, os.cpu_count() or 1)
        self._processes: CpuProcessPool | None = None
        self._follow_ups = FollowUps(context, store)
        self._runner = self._new_runner()
        self._pool = self._new_pool()
        self._results = ResultWriter(
            self._write_results,
            partial(store.ask, metadata.find_already_finished),
            self._pool.put_back,
            self._follow_ups,
        )
        self._watch = LoopWatch(lambda: self._pool.runs)
        self._claims, self._pace = ClaimTracker(), Pace(clock)
        self._is_stopping = self._has_warned = False
        context.telemetry.add_worker(self)

    def _new_pool(self) -> Pool[Claimed, RunResult]:
        return Pool(
            self._slots,
            self._execute,
            lambda job, error: self._runner.error_result(job, error),  # noqa: PLW0108
            on_ended=lambda: self._context.events.emit(Topic.ENDED),
            on_started=lambda: self._watch.wake(),  # noqa: PLW0108 - created later
            on_backlog_low=lambda: self._context.events.emit(Topic.SLOTS_FREE),
            on_dropped=self._follow_ups.drop,
            on_given_back=self._return_jobs,
            may_start=lambda: not self._has_missed_heartbeats(),
            has_busy_threads=lambda: self._store.has_busy_threads,
            default_timeout=lambda: self._context.settings.default_job_timeout / SECOND,
            keeps_waiting=self._keeps_waiting,
            clock=self._clock,
        )

    def _execute(self, run: ActiveRun[Claimed]) -> Coroutine[Any, Any, RunResult]:
        return self._runner.execute(run)

    @classmethod
    async def start(
        cls,
        context: AppContext,
        store: Store,
        slots: int | None = None,
        *,
        dispatches: bool = False,
        work_filter: WorkFilter = ANY_WORK,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> Self:
        """Register a worker. Its id is new at each start, so it is never confused with an earlier one.

        A worker that `dispatches` runs the dispatch cycle itself; others claim pending runs.
        """
        count = slots or context.slots
        row = cls._row(context, count, dispatches, work_filter)
        worker_id = await store.call(context.heartbeat.register, store, row)
        more |= {
            "is_adjustable": slots is None,
            "dispatches": dispatches,
            "work_filter": work_filter,
            "clock": clock,
        }
        return cls(context, store, worker_id, count, **more)

    @property
    def load(self) -> Load:
        return self._pool.load

    @property
    def has_enough_backlog(self) -> bool:
        """Whether the backlog is large enough that the next dispatch cycle can wait."""
        return self._pool.has_enough_backlog

    @property
    def slots_to_fill(self) -> int:
        """How many runs the next claim asks for."""
        return self._pool.slots_to_fill

    @property
    def active_trains(self) -> list[str]:
        """The trains of the active runs, one element per run."""
        return [run.job.train for run in self._pool.runs]

    async def claim(self) -> int:
        """Fill the free slots; returns the number of claimed runs."""
        if self._is_stopping or not self._pool.slots_to_fill or self._has_missed_heartbeats():
            return 0
        async with self._claims:
            jobs = await self._store.call(self._claim)
            await self._pool.start(jobs)
        return len(jobs)

    async def dispatch_and_claim(
        self, dispatch: Callable[[ClaimRequest], Awaitable[DispatchResult]]
    ) -> DispatchResult:
        """Run a dispatch cycle that also claims for the free slots; the claimed runs start at once."""
        async with self._claims:
            began = self._clock()
            dispatched = await dispatch(self._claim_request())
            ran_dry = dispatched.is_out_of_slots and self._pool.is_idle
            self._pool.add(dispatched.claimed)
            ended, per_second = self._pace.measure(began, self._pool.ended_count)
            self._pool.adjust_prefetch(ended, per_second=per_second, ran_dry=ran_dry)
        return dispatched

    @property
    def has_plain_results(self) -> bool:
        """Whether there are results to write, and nothing follows from them."""
        results = self._pool.results
        return bool(results) and is_plain(results) and not self._context.run_log.has_final_batch

    async def flush(self, write: WriteResults | None = None) -> int:
        """Write all new results in one transaction, then call the hooks; returns how many were recorded."""
        finished = self._pool.collect()
        if not finished:
            return 0
        return await self._results.write(finished, write)

    async def send_heartbeat(self) -> None:
        """Send a heartbeat, apply stop requests, and return orphaned runs to the queue."""
        at, before = self._clock(), self._claims.snapshot(self._run_ids())
        is_registered, held, slots = await self._store.call(self._record_heartbeat)
        if not is_registered:
            await self._register_again()
        self._last_heartbeat_at, self._has_warned = at, False
        self._resize(slots)
        for run in held:
            if (why := run.cancel_reason) is not None:
                self._cancel(run.metadata_id, why)
        if is_registered:
            orphans = self._claims.orphans((run.metadata_id for run in held), before)
            self._return_orphans([run for run in held if run.metadata_id in orphans])
        await self._results.retry_held_back()

    def _cancel(self, metadata_id: int, why: CancelReason) -> None:
        """Cancel a run, or drop it if it waits in the backlog: then its code never begins."""
        waiting = self._pool.remove(metadata_id)
        if waiting is None:
            self._pool.cancel(metadata_id, STOP_REASONS[why], timed_out=why is CancelReason.TIMEOUT)
        elif why is CancelReason.TIMEOUT:  # it counts from the claim, but this run has not begun
            self._return_jobs([waiting], "its time limit was over before it began")
        else:
            self._pool.put_back([self._runner.cancelled_result(waiting)])
            self._context.events.emit(Topic.ENDED)

    def sweep(self) -> None:
        """Stop runs that have timed out. Happens on its own; call it after moving a test clock."""
        self._pool.sweep()

    async def drain(self, seconds: float) -> None:
        """Claim nothing more and wait for active runs; after `seconds` return them to the queue.

        A second call with a shorter time overrides the first.
        """
        self._is_stopping = True
        async with self._claims:  # a claim under way may still bring jobs
            self._return_backlog("the worker stops")
        if not await self._pool.wait_until_idle(seconds):
            self._pool.interrupt_all("the worker stops")
            if not await self._pool.wait_until_idle(INTERRUPT_SECONDS):
                self._abandon()
        await self._flush_until_written()
        await self._results.wait_for_hooks()

    async def _flush_until_written(self) -> None:
        """Write the remaining results before this process exits; retry while the database is unavailable."""
        for pause in FLUSH_PAUSES:
            await self._results.retry_held_back()
            try:
                await self.flush()
            except StoreError as error:
                logger.warning("worker %s: results could not be written, trying again: %s", self.id, error)
            if not (self._pool.results or self._results.results_to_write):
                return
            await asyncio.sleep(pause)
        await self.flush()

    def start_heartbeat(self) -> None:
        """Let the heartbeat thread renew this worker, even if its event loop is blocked."""
        self._context.heartbeat.add(self.id)

    async def unregister(self) -> None:
        """Close the worker and remove its row."""
        self._context.heartbeat.remove(self.id)
        self._watch.stop()
        self._pool.close()
        self._context.telemetry.remove_worker(self)
        if self._processes is not None:
            await self._processes.close()
        await self._store.call(workers.remove, self.id)

    async def run_all(
        self,
        fetch: Callable[[], Awaitable[object]] | None = None,
        finish: Callable[[], Awaitable[int]] | None = None,
    ) -> int:
        """Claim and run everything pending, or all that `fetch` brings; returns the number of runs.

        `finish` writes the results instead of `flush`.
        """
        done = 0
        while True:
            if self._has_missed_heartbeats():
                await self.send_heartbeat()  # no heartbeat loop runs here
            if not await (fetch or self.claim)():
                return done
            await self._pool.wait_until_idle()
            done += await (finish or self.flush)()
            await self._results.wait_for_hooks()

    @property
    def _extra(self) -> dict[str, Any]:
        return {"worker": self.id}

    @property
    def _target_slots(self) -> int:
        """The slots from the current settings, unless given at the start."""
        return self._context.slots if self._is_adjustable else self._slots

    def _resize(self, slots: int) -> None:
        """Change the number of slots to that of the worker's row, which dispatchers rely on."""
        if self._slots != slots:
            self._slots = slots
            self._pool.resize(slots)
            self._context.events.emit(Topic.PENDING)

    async def _register_again(self) -> None:
        """Register as a new worker: this one was declared lost, and its runs were reassigned."""
        text = "worker %s missed its heartbeat; its runs were reassigned; registering again"
        logger.warning(text, self.id, extra=self._extra)
        async with self._claims:
            self._pool.interrupt_all("the worker missed its heartbeat")
            self._return_backlog("the worker missed its heartbeat")
            row = self._row(self._context, self._slots, self._dispatches, self._work_filter)
            old_id, self.id = (
                self.id,
                await self._store.call(self._context.heartbeat.register, self._store, row),
            )
            self._context.heartbeat.replace(old_id, self.id)
            self._runner = self._new_runner()

    def _abandon(self) -> None:
        """Return runs that do not stop. Their records end now; later work of their threads is ignored."""
        abandoned = self._pool.abandon_all("the worker stops")
        for job in abandoned:
            logger.warning(
                "run %s of train %r did not stop within %g s; it was returned to the queue, its thread was "
                "abandoned. Synchronous code must check current().cancelled",
                job.metadata_id,
                job.train,
                INTERRUPT_SECONDS,
                extra={**self._extra, "metadata_id": job.metadata_id, "train": job.train},
            )
        self._pool.put_back([self._runner.put_back_result(job, "the worker stopped") for job in abandoned])

    def _return_backlog(self, reason: str) -> None:
        self._return_jobs(self._pool.release(), reason)

    def _return_jobs(self, jobs: Sequence[Claimed], reason: str) -> None:
        """Return jobs that have not begun to the queue, without counting an attempt."""
        if jobs:
            self._pool.put_back([self._runner.put_back_result(job, reason) for job in jobs])
            self._context.events.emit(Topic.ENDED)

    def _run_ids(self) -> list[int]:
        """The ids of all runs of this worker: in the backlog, active, or with a result to write."""
        results = (*self._pool.results, *self._results.results_to_write)
        return [*self._pool.job_ids, *(result.metadata_id for result in results)]

    def _return_orphans(self, orphans: Sequence[HeldRun]) -> None:
        """Return orphans to the queue: while this worker sends heartbeats, no other worker gets them."""
        if orphans:
            ids = [run.metadata_id for run in orphans]
            text = "worker %s holds runs %s without running them; they were returned to the queue"
            logger.warning(text, self.id, ids, extra=self._extra)
            self._pool.put_back([self._runner.orphan_result(run) for run in orphans])
            self._context.events.emit(Topic.ENDED)

    def _has_missed_heartbeats(self) -> bool:
        """Whether other processes may have declared this worker lost: then it must not claim runs."""
        by_thread = self._context.heartbeat.last_heartbeat_at(self.id)
        last_at = self._last_heartbeat_at if by_thread is None else max(self._last_heartbeat_at, by_thread)
        is_late = self._clock() - last_at > self._context.settings.worker_lost_after.total_seconds()
        if is_late and not self._has_warned:
            text = "worker %s could not send its heartbeat; it claims no runs until it can"
            logger.warning(text, self.id, extra=self._extra)
        self._has_warned = is_late
        return is_late

    def _claim(self, connection: Connection) -> list[Claimed]:
        return claim.claim(connection, self._claim_request(), now=self._store.statement_now())

    def _claim_request(self) -> ClaimRequest:
        request = self._work_filter.claim_request(
            self._context, worker_id=self.id, slots=self._pool.slots_to_fill, cpu_slots=self._process_count
        )
        if request.cpu_trains:
            held = sum(train in request.cpu_trains for train in self._pool.trains)
            request = request._replace(cpu_slots=max(0, request.cpu_slots - held))
        if self._is_stopping or self._has_missed_heartbeats():
            return request._replace(slots=0)
        # By default a job has as many attempts as this setting says; with one, a claim ahead risks a second.
        may_wait = self._context.settings.default_max_attempts > 1
        return request._replace(ahead=self._pool.backlog_to_fill) if may_wait else request

    def _new_runner(self) -> JobRunner:
        processes, executor = self._open_processes, self._executor
        return JobRunner(self._context, self._store, self.id, self._follow_ups, processes, executor)

    def _open_processes(self) -> CpuProcessPool:
        """The processes of cpu trains, from the first run of such a train on."""
        if self._processes is None:
            self._processes = CpuProcessPool(self._process_count)
        return self._processes

    @classmethod
    def _row(
        cls,
        context: AppContext,
        slots: int,
        dispatches: bool,  # noqa: FBT001
        work_filter: WorkFilter,
    ) -> dict[str, Any]:
        """The columns of the worker's row that say how it gets its runs."""
        row = {"concurrency": slots, "dispatches": dispatches, "kind": cls.kind}
        return (
            row
            | work_filter.worker_columns(context)
            | ({"routes": context.routes_json} if dispatches else {})
        )

    async def _write_results(self, results: Sequence[RunResult]) -> Sequence[RunResult]:
        if is_plain(results) and not self._context.run_log.has_final_batch:
            return await finish_plain(self._store, results)
        return await self._store.call(self._finish, results)

    def _finish(self, connection: Connection, results: Sequence[RunResult]) -> Sequence[RunResult]:
        with self._context.run_log.final_batch(result.metadata_id for result in results) as final_batch:
            if final_batch is not None:
                final_batch.write(connection, now=self._store.now(connection))
            return finish(connection, results, self._context.settings, store=self._store)

    def _record_heartbeat(self, connection: Connection) -> tuple[bool, list[HeldRun], int]:
        self._context.live.refresh(connection)
        now, slots = self._store.now(connection), self._target_slots
        is_registered = workers.record_heartbeat(connection, self.id, concurrency=slots, now=now)
        return is_registered, claim.load_held_runs(connection, self.id), slots


class ClaimSnapshot(NamedTuple):
    """What a worker knew before it read its runs from the database: their ids, and finished claims."""

    known_ids: frozenset[int]
    finished_claims: int


class ClaimTracker:
    """A lock around each claim, which also finds orphans.

    A connection may fail during the commit of a claim. Then the runs belong to the worker in the database,
    but the worker got an error and does not run them: they are orphans. A run of a claim in progress looks
    the same, so a run counts as an orphan only at the first check after that claim has finished.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._started_claims = 0
        self._finished_claims = 0
        self._suspects: dict[int, int] = {}
        """Unknown runs of the last check, and the number of started claims when each was first seen."""

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        self._started_claims += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._finished_claims += 1
        self._lock.release()

    def snapshot(self, known_ids: Iterable[int]) -> ClaimSnapshot:
        """Take before the database is read: a run that ends meanwhile is not an orphan."""
        return ClaimSnapshot(frozenset(known_ids), self._finished_claims)

    def orphans(self, held_ids: Iterable[int], snapshot: ClaimSnapshot) -> set[int]:
        """The ids of runs that belong to this worker in the database but will never run here."""
        unknown = [run_id for run_id in held_ids if run_id not in snapshot.known_ids]
        suspects = self._suspects
        orphans = {
            run_id
            for run_id in unknown
            if run_id in suspects and suspects[run_id] <= snapshot.finished_claims
        }
        self._suspects = {run_id: suspects.get(run_id, self._started_claims) for run_id in unknown}
        return orphans


class Pace:
    """Measures the rate of ended runs between fetches.

    It uses the rate and not the runs that end during a fetch: short jobs may all have ended before the fetch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_fetch_at = clock()
        self._ended = 0

    def measure(self, began: float, ended: int) -> tuple[int, float]:
        """How many runs end during a fetch that began then and is done now, and how many end per second.

        `ended` is the total so far.
        """
        now = self._clock()
        since, took, new = now - self._last_fetch_at, now - began, ended - self._ended
        self._last_fetch_at, self._ended = now, ended
        per_second = new / since if since > 0 else math.inf
        return new if since <= took else int(new * took / since), per_second
