"""A worker: claims pending runs into its slots, writes their endings in batches, and says that it lives."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from trax.admin.finishing import finish
from trax.errors import StoreError
from trax.events import Topic
from trax.host.endings import Endings, written_before
from trax.host.job import Finished, JobRunner
from trax.host.progress import STOPPED
from trax.host.takes import ANYTHING
from trax.records.states import CancelReason
from trax.records.worker import WorkerKind
from trax.store import claim, workers
from trax.work.claiming import Claiming
from trax.work.pace import Pace
from trax.work.pool import Load, Pool
from trax.work.processes import Processes
from trax.work.watch import LoopWatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trax.admin.job_dispatcher import Dispatched
    from trax.host.far import Far
    from trax.host.parts import Parts
    from trax.host.takes import Takes
    from trax.store import Connection, Store
    from trax.store.claim import Claimed, Held, Taker

logger = logging.getLogger(__name__)

SECOND: Final = timedelta(seconds=1)
FLUSH_PAUSES: Final = (0.2, 0.5, 1.0, 2.0)
"""How long a worker that leaves waits before it tries again to write what has ended."""
INTERRUPT_SECONDS: Final = 5.0
"""How long a run that was interrupted may tidy up. A thread that does not listen is then left to itself."""


class Worker:
    """The slots of one process. Each of its turns is one short transaction."""

    kind: ClassVar = WorkerKind.WORKER
    _far: Far | None = None

    def __init__(
        self,
        parts: Parts,
        store: Store,
        worker_id: int,
        slots: int,
        *,
        is_adjustable: bool = False,
        dispatches: bool = False,
        takes: Takes = ANYTHING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = worker_id
        self._parts = parts
        self._store = store
        self._slots = slots
        self._is_adjustable = is_adjustable
        self._dispatches = dispatches
        self._takes = takes
        self._clock = clock
        self._beaten_at = clock()
        self._processes = Processes(min(slots, os.cpu_count() or 1))
        self._runner = self._new_runner()
        self._pool = self._new_pool()
        self._endings = Endings(
            partial(store.call, self._finish),
            partial(store.ask, written_before),
            self._pool.put_back,
            lambda: self._runner,
        )
        self._watch = LoopWatch(lambda: self._pool.runs)
        self._claiming, self._pace = Claiming(), Pace(clock)
        self._is_leaving = self._is_silenced = False
        parts.telemetry.watch(self)

    def _new_pool(self) -> Pool[Claimed, Finished]:
        return Pool(
            self._slots,
            lambda job, token: self._runner.execute(job, token),  # noqa: PLW0108 - of the runner then
            lambda job, error: self._runner.failed(job, error),  # noqa: PLW0108
            on_ended=lambda: self._parts.events.emit(Topic.ENDED),
            on_begun=lambda: self._watch.wake(),  # noqa: PLW0108 - made later
            on_short=lambda: self._parts.events.emit(Topic.VACANT),
            default_timeout=lambda: self._parts.settings.default_job_timeout / SECOND,
            clock=self._clock,
        )

    @classmethod
    async def started(
        cls,
        parts: Parts,
        store: Store,
        slots: int | None = None,
        *,
        dispatches: bool = False,
        takes: Takes = ANYTHING,
        clock: Callable[[], float] = time.monotonic,
        **more: Any,
    ) -> Self:
        """Register a worker: its id is new at each start, so nobody mistakes it for an earlier one.

        One that `dispatches` comes to the gate itself; others rely on runs being pending for them.
        """
        wanted = slots or _slots(parts)
        row = cls._row(parts, wanted, dispatches, takes)
        worker_id = await store.call(parts.presence.register, store, row)
        more |= {"is_adjustable": slots is None, "dispatches": dispatches, "takes": takes, "clock": clock}
        return cls(parts, store, worker_id, wanted, **more)

    @property
    def load(self) -> Load:
        return self._pool.load

    @property
    def is_stocked(self) -> bool:
        """Whether it has so many runs in hand that a visit to the gate can wait."""
        return self._pool.is_stocked

    @property
    def under_way(self) -> list[str]:
        """The trains that run here at this moment, each as often as it does."""
        return [run.job.train for run in self._pool.runs]

    async def claim(self) -> int:
        """Fill the free slots; returns how many runs were taken."""
        if self._is_leaving or not self._pool.wanted or self._is_silent():
            return 0
        async with self._claiming:
            jobs = await self._store.call(self._claim)
            await self._pool.start(jobs)
        return len(jobs)

    async def visit_gate(self, visit: Callable[[Taker], Awaitable[Dispatched]]) -> Dispatched:
        """Come along to the gate: what is let in for the free slots begins at once."""
        async with self._claiming:
            began = self._clock()
            dispatched = await visit(self._taker())
            self._pool.add(dispatched.held)
            self._pool.foresee(self._pace.during_fetch(began, self._pool.ended_count))
        return dispatched

    async def flush(self) -> int:
        """Write down what has ended, all of it at once, and then tell the hooks."""
        finished = self._pool.collect()
        if not finished:
            return 0
        return await self._endings.write(finished)

    async def beat(self) -> None:
        """Say that this worker lives, stop the runs that somebody wants stopped, put back what strayed."""
        at, before = self._clock(), self._claiming.before(self._known())
        lives, held, slots = await self._store.call(self._beat)
        if not lives:
            await self._begin_anew()
        self._beaten_at, self._is_silenced = at, False
        self._adjust(slots)
        for run in held:
            if (why := run.to_stop) is not None:
                self._pool.cancel(run.metadata_id, STOPPED[why], timed_out=why is CancelReason.TIMEOUT)
        if lives:
            strays = self._claiming.strays((run.metadata_id for run in held), before)
            self._put_back_strays([run for run in held if run.metadata_id in strays])

    def sweep(self) -> None:
        """Stop what has run out of time. It comes by itself; ask for it when a clock was moved by hand."""
        self._pool.sweep()

    async def drain(self, seconds: float) -> None:
        """Claim nothing more and let what runs end; what takes too long goes back to the queue.

        A second call with less patience cuts the first one short.
        """
        self._is_leaving = True
        async with self._claiming:  # a claim under way may still bring jobs
            self._give_back("the worker stops")
        if not await self._pool.drained(seconds):
            self._pool.interrupt_all("the worker stops")
            if not await self._pool.drained(INTERRUPT_SECONDS):
                self._abandon()
        await self._flush_to_the_last()
        await self._endings.told()

    async def _flush_to_the_last(self) -> None:
        """Write what has ended before this process is gone, with patience for a database that is away."""
        for pause in FLUSH_PAUSES:
            try:
                await self.flush()
            except StoreError as error:
                logger.warning("worker %s: endings could not be written, trying again: %s", self.id, error)
                await asyncio.sleep(pause)
            else:
                if not self._pool.ended:
                    return
        await self.flush()

    def stay(self) -> None:
        """Have the heartbeat's thread say that this worker lives, whatever its event loop does."""
        self._parts.presence.join(self.id)

    async def leave(self) -> None:
        """Take the worker's row away: nobody needs to watch it any more."""
        self._parts.presence.leave(self.id)
        self._watch.stop()
        self._pool.close()
        self._parts.telemetry.leave(self)
        await self._processes.close()
        await self._store.call(workers.remove, self.id)

    async def run_all(self) -> int:
        """Claim and run everything pending, then return how many runs that were."""
        done = 0
        while True:
            if self._is_silent():
                await self.beat()  # nobody else does it here
            if not await self.claim():
                return done
            await self._pool.drained()
            done += await self.flush()
            await self._endings.told()

    @property
    def _extra(self) -> dict[str, Any]:
        return {"worker": self.id}

    @property
    def _wanted_slots(self) -> int:
        """As many as the settings say by now, unless whoever started the worker said how many."""
        return _slots(self._parts) if self._is_adjustable else self._slots

    def _adjust(self, slots: int) -> None:
        """Have as many slots as the row says by now: others count on that number."""
        if self._slots != slots:
            self._slots = slots
            self._pool.resize(slots)
            self._parts.events.emit(Topic.PENDING)

    async def _begin_anew(self) -> None:
        """Go on as a new worker: this one was taken for dead, and what it held was given to others."""
        text = "worker %s missed its heartbeat; its runs were reassigned; registering again"
        logger.warning(text, self.id, extra=self._extra)
        async with self._claiming:
            self._pool.interrupt_all("its worker was taken for dead")
            self._give_back("its worker was taken for dead")
            row = self._row(self._parts, self._slots, self._dispatches, self._takes)
            old_id, self.id = self.id, await self._store.call(self._parts.presence.register, self._store, row)
            self._parts.presence.move(old_id, self.id)
            self._runner = self._new_runner()

    def _abandon(self) -> None:
        """Put back what does not listen. Its record ends now: what its thread still does is not written."""
        abandoned = self._pool.abandon_all("the worker stops")
        for job in abandoned:
            logger.warning(
                "run %s of train %r did not stop within %g s; it is put back to the queue, and its thread is "
                "abandoned. Synchronous code must look at current().cancelled",
                job.metadata_id,
                job.train,
                INTERRUPT_SECONDS,
                extra={**self._extra, "metadata_id": job.metadata_id, "train": job.train},
            )
        self._pool.put_back([self._runner.not_begun(job, "the worker stopped") for job in abandoned])

    def _give_back(self, reason: str) -> None:
        released = [self._runner.not_begun(job, reason) for job in self._pool.release()]
        if released:
            self._pool.put_back(released)
            self._parts.events.emit(Topic.ENDED)

    def _known(self) -> list[int]:
        """The runs this worker knows of: those it has not begun, those that run, those to be written down."""
        ended = (*self._pool.ended, *self._endings.under_way)
        return [*self._pool.known, *self._endings.lost, *(one.ended.ending.metadata_id for one in ended)]

    def _put_back_strays(self, strays: Sequence[Held]) -> None:
        """Nobody will run what is ours by its record only, and as long as we beat nobody takes it from us."""
        if strays:
            ids = [run.metadata_id for run in strays]
            text = "worker %s holds runs %s without running them; they are put back"
            logger.warning(text, self.id, ids, extra=self._extra)
            self._pool.put_back([self._runner.strayed(run) for run in strays])
            self._parts.events.emit(Topic.ENDED)

    def _is_silent(self) -> bool:
        """Whether others may take this worker for dead by now: then it must not take what it cannot keep."""
        by_thread = self._parts.presence.beaten_at(self.id)
        beaten_at = self._beaten_at if by_thread is None else max(self._beaten_at, by_thread)
        is_silent = self._clock() - beaten_at > self._parts.settings.worker_lost_after.total_seconds()
        if is_silent and not self._is_silenced:
            text = "worker %s could not say that it lives; it claims nothing until it can"
            logger.warning(text, self.id, extra=self._extra)
        self._is_silenced = is_silent
        return is_silent

    def _claim(self, connection: Connection) -> list[Claimed]:
        return claim.claim(connection, self._taker(), now=self._store.given_now(connection))

    def _taker(self) -> Taker:
        slots = 0 if self._is_leaving or self._is_silent() else self._pool.wanted
        return self._takes.taker(self._parts, worker_id=self.id, slots=slots, cpu_slots=self._processes.free)

    def _new_runner(self) -> JobRunner:
        return JobRunner(self._parts, self._store, self.id, self._processes, self._far)

    @classmethod
    def _row(cls, parts: Parts, slots: int, dispatches: bool, takes: Takes) -> dict[str, Any]:  # noqa: FBT001
        """What its row says of how it gets its runs."""
        row = {"concurrency": slots, "dispatches": dispatches, "kind": cls.kind}
        return row | takes.columns(parts) | ({"routes": parts.published_routes} if dispatches else {})

    def _finish(self, connection: Connection, finished: Sequence[Finished]) -> list[Finished]:
        ended = [one.ended for one in finished]
        with self._parts.notebook.last_words(one.ending.metadata_id for one in ended) as words:
            if words is not None:
                words.write(connection, now=self._store.now(connection))
            written = finish(connection, ended, self._parts.settings, store=self._store)
        if len(written) == len(finished):
            return list(finished)
        ours = {one.ending.metadata_id for one in written}
        return [one for one in finished if one.ended.ending.metadata_id in ours]

    def _beat(self, connection: Connection) -> tuple[bool, list[Held], int]:
        self._parts.live.refresh(connection)
        now, slots = self._store.now(connection), self._wanted_slots
        lives = workers.beat(connection, self.id, concurrency=slots, now=now)
        return lives, claim.held(connection, self.id), slots


def _slots(parts: Parts) -> int:
    return parts.settings.local_worker_count or os.cpu_count() or 1
