"""`Harness`: run the engine step by step in tests, with a manual clock."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from trax.engine.dead_letters import clean_dead_letters
from trax.engine.manifest_manager import ManagerInput
from trax.engine.routing import AcceptedWork, FleetCache, WorkerFleet
from trax.engine.submitter import open_submitter
from trax.errors import TraxError, did_you_mean, explain_call
from trax.remote.hand_over import HandOver
from trax.server.loops import RowRepair, clean_metadata_now, manage_now, update_totals
from trax.server.start import start
from trax.worker.dispatcher import Dispatcher
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from trax.app.app import Trax
    from trax.engine.job_dispatcher import DispatchResult
    from trax.engine.manifest_manager import ManagerResult
    from trax.engine.metadata_cleanup import MetadataCleanupResult
    from trax.records.worker import HeartbeatStreak


class Harness:
    """Opens an app's store, seeds it, and runs each duty on request. It starts no loops.

    Time, also in the database's records, moves only with `advance`.
    """

    def __init__(self, app: Trax, now: datetime | None = None) -> None:
        self.app = app
        self.now = now or datetime(2027, 1, 1, tzinfo=UTC)
        self.watch: HeartbeatStreak | None = None
        """Since when this server could send heartbeats; None: always, so silent workers count as lost."""
        self._fleets = FleetCache(self._own_fleet)
        self._turns = 0
        self._workers: list[Worker] = []

    async def __aenter__(self) -> Self:
        context = self.app.context
        context.store.clock = lambda: self.now
        context.run_log.is_manual = context.heartbeat.is_manual = True
        self._store = await context.store.open()
        self._dispatcher = self._new_dispatcher()
        try:
            await self.seed()
        except BaseException:
            self.app.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.app.close()

    async def seed(self) -> None:
        """Do what a server does at start: recover, retire, seed. Call it again for a restart."""
        context = self.app.context
        self.app.submitters.check(self.app.trains)
        settings = await self._store.ask(context.live.refresh)
        timetable = context.declarations.timetable()
        await start(self._store, timetable, settings, app=context.name, watch=self.watch)
        context.live.note_declared(context.heartbeat.exempt_trains(), self.now)

    @explain_call("advance(seconds=…, minutes=…, hours=…, days=…, weeks=…)")
    async def advance(
        self,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        weeks: float = 0,
        milliseconds: float = 0,
        microseconds: float = 0,
    ) -> None:
        """Move the clock, nothing else: `advance(minutes=5)`."""
        self.now += timedelta(
            seconds=seconds,
            minutes=minutes,
            hours=hours,
            days=days,
            weeks=weeks,
            milliseconds=milliseconds,
            microseconds=microseconds,
        )

    async def cycle(self, duty: str) -> Any:
        """Run one cycle of one duty; returns what it did."""
        duties: Mapping[str, Callable[[], Awaitable[Any]]] = {
            "manifest_manager": self._manage,
            "job_dispatcher": self._dispatch,
            "hand_over": self._hand_over,
            "dead_letter_cleanup": self._clean_dead_letters,
            "metadata_cleanup": self._clean_metadata,
            "totals": self._add_up,
            "run_log": self._write_run_log,
        }
        if duty not in duties:
            raise TraxError(f"unknown duty {duty!r}{did_you_mean(duty, duties)}")
        return await self._repeat_if_repaired(duties[duty])

    async def _repeat_if_repaired(self, duty: Callable[[], Awaitable[Any]]) -> Any:
        """Run a cycle as a loop of a server does: again after unreadable values were reset."""
        try:
            return await duty()
        except Exception as error:
            if not await RowRepair(self._store).repair_after(error):
                raise
        return await duty()

    async def work(self) -> int:
        """Claim and run all pending runs, one after the other; returns their number."""
        return await self._repeat_if_repaired(self._work)

    async def _work(self) -> int:
        async with self._worker() as worker:
            return await worker.run_all()

    @asynccontextmanager
    async def _worker(self, *, dispatches: bool = False) -> AsyncGenerator[Worker]:
        worker = await Worker.start(self.app.context, self._store, slots=1, dispatches=dispatches)
        self._workers.append(worker)
        try:
            yield worker
        finally:
            self._workers.remove(worker)
            await worker.unregister()

    async def run_until_idle(self) -> None:
        """Run manager, dispatcher, submitters and workers in turn until nothing changes at this time."""
        while True:
            managed = await self._manage()
            worked = await self._repeat_if_repaired(self._dispatch_and_work)
            worked += await self._hand_over() + await self.work()
            if not (worked or (managed and (managed.has_changes or managed.run_again))):
                return

    async def _dispatch_and_work(self) -> int:
        """Dispatch and run what fits, as a server in all roles does; returns the number of new runs."""
        admitted = 0
        async with self._worker(dispatches=True) as worker:
            dispatcher = self._new_dispatcher(worker)

            async def fetch() -> bool:
                nonlocal admitted
                dispatched = await dispatcher.visit()
                admitted += len(dispatched.metadata_ids)
                return bool(dispatched.claimed) or dispatched.run_again

            return await worker.run_all(fetch) + admitted

    async def _manage(self) -> ManagerResult | None:
        for worker in self._workers:
            await worker.send_heartbeat()  # else a run that moves the clock itself would lose its worker
        await self._store.call(self.app.context.heartbeat.record_heartbeats, self.now)
        turn, self._turns = ManagerInput(self._turns, self.watch, self._fleets), self._turns + 1
        return await self._store.call(manage_now, self._store, self.app.context, turn)

    async def _dispatch(self) -> DispatchResult:
        return await self._dispatcher.visit()

    def _new_dispatcher(self, worker: Worker | None = None) -> Dispatcher:
        return Dispatcher(self.app.context, self._store, _ManualTurns(), worker, fleets=self._fleets)

    def _own_fleet(self) -> WorkerFleet:
        """The gate expects these workers all the time, though they exist only during `work`."""
        context = self.app.context
        return WorkerFleet(workers=(AcceptedWork(context.trains.names_and_aliases),)).merge(
            context.own_routes()
        )

    async def _hand_over(self) -> int:
        """Submit all pending runs of every submitter; returns their number."""
        handed = 0
        for submitter in self.app.submitters:
            handing = HandOver(self.app.context, self._store, submitter)
            async with open_submitter(submitter, self.app.receiver):
                while taken := await handing.turn():
                    handed += taken
                    await handing.drain()
        return handed

    async def _clean_dead_letters(self) -> int:
        settings = await self._store.ask(self.app.context.live.refresh)
        return await self._store.call(clean_dead_letters, self._store, settings)

    async def _clean_metadata(self) -> list[MetadataCleanupResult]:
        """Delete batch after batch until one is not full; returns what each deleted."""
        batches: list[MetadataCleanupResult] = []
        resume_at: Mapping[str, datetime] = {}
        while not batches or batches[-1].run_again:
            batch = await self._store.call(clean_metadata_now, self._store, self.app.context, resume_at)
            batches.append(batch)
            resume_at = batch.resume_at
        return [batch for batch in batches if batch.total]

    async def _add_up(self) -> None:
        """Add all ended runs to the totals, step by step."""
        while await update_totals(self._store):
            pass

    async def _write_run_log(self) -> None:
        """Write log lines and progress of active runs."""
        await asyncio.to_thread(self.app.context.run_log.write)


class _ManualTurns:
    """The turns of a dispatcher that nothing wakes."""

    is_requested = True
    is_stopping = False

    def wake(self) -> None:
        """Do nothing: the next cycle is requested by the test."""
