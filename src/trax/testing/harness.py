"""`Harness`: run the engine step by step in tests, with a manual clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from trax.engine.job_dispatcher import DispatchResult
from trax.engine.routing import AcceptedWork, FleetCache, WorkerFleet
from trax.engine.submitter import open_submitter
from trax.errors import TraxError, did_you_mean, explain_call
from trax.remote.hand_over import HandOver, hand_over_duty
from trax.server.duties import RetirementPlan, RowRepair, build_duties, retirer
from trax.server.start import start
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.app.app import Trax
    from trax.engine.manifest_manager import ManagerResult
    from trax.engine.metadata_cleanup import MetadataCleanupResult
    from trax.records.worker import HeartbeatStreak
    from trax.worker.duties import Duty


class Harness:
    """Opens an app's store, seeds it, and runs each duty on request. It starts no loops.

    Time, also in the database's records, moves only with `advance`.
    """

    def __init__(self, app: Trax, now: datetime | None = None) -> None:
        self.app = app
        self.now = now or datetime(2027, 1, 1, tzinfo=UTC)
        self._fleets = FleetCache(self._own_fleet)
        self._duties: dict[str, Duty] = {}
        self._workers: list[dict[str, Duty]] = []
        """The duties of the workers that exist now."""

    @property
    def watch(self) -> HeartbeatStreak | None:
        """Since when this server could send heartbeats; None: always, so silent workers count as lost."""
        return self.app.context.heartbeat.watch

    @watch.setter
    def watch(self, watch: HeartbeatStreak | None) -> None:
        self.app.context.heartbeat.watch = watch

    async def __aenter__(self) -> Self:
        context = self.app.context
        context.store.clock = lambda: self.now
        context.run_log.is_manual = context.heartbeat.is_manual = True
        self._store = await context.store.open()
        self._duties = self._build_duties()
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
        plan = await start(self._store, timetable, settings, app=context.name, watch=self.watch)
        retiring = RetirementPlan(timetable, plan.retired.postponed)
        self._duties["retirer"] = retirer(context, self._store, retiring)
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
        cycles: dict[str, Callable[[], Awaitable[Any]]] = {
            **{name: partial(self._run_turn, name) for name in self._duties},
            "manifest_manager": self._manage,
            "metadata_cleanup": self._clean_metadata,
            "totals": self._add_up,
            "hand_over": self._hand_over,
            "run_log": self._write_run_log,
        }
        if duty not in cycles:
            raise TraxError(f"unknown duty {duty!r}{did_you_mean(duty, cycles)}")
        return await self._repeat_if_repaired(cycles[duty])

    async def work(self) -> int:
        """Claim and run all pending runs, one after the other; returns their number."""
        return await self._repeat_if_repaired(partial(self._run_worker, dispatches=False))

    async def run_until_idle(self) -> None:
        """Run manager, dispatcher, submitters and workers in turn until nothing changes at this time."""
        while True:
            managed = await self._manage()
            worked = await self._repeat_if_repaired(partial(self._run_worker, dispatches=True))
            worked += await self._hand_over() + await self.work()
            if not (worked or (managed and (managed.has_changes or managed.run_again))):
                return

    async def _run_turn(self, duty: str) -> Any:
        return (await self._duties[duty].turn()).result

    async def _repeat_if_repaired(self, cycle: Callable[[], Awaitable[Any]]) -> Any:
        """Run a cycle as a loop of a server does: again after unreadable values were reset."""
        try:
            return await cycle()
        except Exception as error:
            if not await RowRepair(self._store).repair_after(error):
                raise
        return await cycle()

    async def _run_worker(self, *, dispatches: bool) -> int:
        """Start a worker and run all that its process claims, or dispatches and claims, turn by turn.

        Returns how many runs were finished, dispatched or claimed.
        """
        worker = await Worker.start(self.app.context, self._store, slots=1, dispatches=dispatches)
        duties = self._build_duties(schedules=dispatches, row=worker)
        intake, dispatched = duties["job_dispatcher" if dispatches else "claimer"], 0

        async def fetch() -> bool:
            nonlocal dispatched
            result = (await intake.turn()).result
            if not isinstance(result, DispatchResult):
                return bool(result)
            dispatched += len(result.metadata_ids) + len(result.claimed)
            return bool(result.claimed) or result.run_again

        async def finish() -> int:
            return (await duties["finisher"].turn()).result or 0

        self._workers.append(duties)
        try:
            return await worker.run_all(fetch, finish) + dispatched
        finally:
            self._workers.remove(duties)
            await worker.unregister()

    def _build_duties(self, **options: Any) -> dict[str, Duty]:
        context, store, fleets = self.app.context, self._store, self._fleets
        duties = build_duties(context, store, lambda _: MANUAL, fleets=fleets, **options)
        return {duty.name: duty for duty in duties}

    async def _manage(self) -> ManagerResult | None:
        for duties in self._workers:
            await duties["heartbeat"].turn()  # else a run that moves the clock itself would lose its worker
        await self._store.call(self.app.context.heartbeat.record_heartbeats, self.now)
        return await self._run_turn("manifest_manager")

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
            hand_over = HandOver(self.app.context, self._store, submitter)
            duty = hand_over_duty(self.app.context, hand_over)
            async with open_submitter(submitter, self.app.receiver):
                while taken := (await duty.turn()).result:
                    handed += taken
                    await hand_over.drain()
        return handed

    async def _clean_metadata(self) -> list[MetadataCleanupResult]:
        """Delete batch after batch until one is not full; returns what each deleted."""
        return [batch for batch in await self._run_to_end("metadata_cleanup") if batch.total]

    async def _add_up(self) -> None:
        """Add all ended runs to the totals, step by step."""
        await self._run_to_end("totals")

    async def _run_to_end(self, duty: str) -> list[Any]:
        """Run turns until none is requested at once; returns what each did."""
        turns = [await self._duties[duty].turn()]
        while turns[-1].next_in == 0:
            turns.append(await self._duties[duty].turn())
        return [turn.result for turn in turns]

    async def _write_run_log(self) -> None:
        """Write log lines and progress of active runs."""
        await asyncio.to_thread(self.app.context.run_log.write)


class _ManualTurns:
    """The turns of a duty that nothing wakes."""

    is_requested = True
    is_stopping = False

    def wake(self) -> None:
        """Do nothing: the next cycle is requested by the test."""


MANUAL: Final = _ManualTurns()
