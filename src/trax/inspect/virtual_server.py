"""A server of a simulation: its duties are those of a real server, and each of their turns is an event.

Only what drives them is virtual: the clock, the store with the faults of its transactions, and the slots of
the worker, in which the ends of jobs are drawn (`simulated_worker.py`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from trax.engine.job_dispatcher import DispatchResult
from trax.engine.manifest_manager import ManagerResult
from trax.engine.schedule import start_up
from trax.engine.seed import declaration_digest
from trax.events import Events, Topic
from trax.inspect.simulated_store import ServerStore
from trax.inspect.simulated_worker import SimulatedWorker
from trax.inspect.simulation import VirtualDuties, list_ids
from trax.records.worker import HeartbeatStreak
from trax.server.duties import RetirementPlan, build_duties, seconds_to_next_due
from trax.worker.app_context import ProcessCounters, Telemetry
from trax.worker.duties import HANDLED_BY, Duty, DutyKind, Turn, announce_capacity, is_enabled
from trax.worker.heartbeat import Heartbeat, SchedulerRow
from trax.worker.run_log import RunLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from trax.engine.seed import SeedPlan
    from trax.inspect.simulated_worker import DrawnRun
    from trax.inspect.simulation import Simulation, Workload
    from trax.schedule.declaration import Timetable
    from trax.store import Connection
    from trax.worker.app_context import AppContext

Role = Literal["all", "scheduler", "worker"]

START_PAUSE: Final = 2.0
TOTALS_SECONDS: Final = 600.0
"""How often totals are updated: less often than in a server, since each poll is an event."""


class VirtualServer:
    """One process: its memory, which a crash loses, and the duties of its role."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        context: AppContext,
        timetable: Timetable,
        workload: Workload,
        *,
        role: Role = "all",
        slots: int = 10,
        has_housekeeping: bool = True,
    ) -> None:
        self.simulation = simulation
        self.name = name
        self.context = build_process_parts(context)
        self.workload = workload
        self.role: Role = role
        self.slots = slots
        self.has_housekeeping = has_housekeeping
        """Whether it runs cleanup and watchdog; if not, the manager also runs only when a manifest is due."""
        self.is_alive = True
        self.is_stopping = False
        self.suspended_until: datetime | None = None
        self.clock_rate = 1.0
        """The speed of its own clock, relative to the clock of the database."""
        self.worker: SimulatedWorker | None = None
        self.duties = VirtualDuties(self)
        self.log = partial(simulation.log, name)
        self._row: SimulatedWorker | SchedulerRow | None = None
        self._store = ServerStore(simulation, self)
        self._timetable = timetable
        for topic in Topic:
            self.context.events.listen(topic, partial(self.duties.wake, topic))

    @property
    def schedules(self) -> bool:
        return self.role != "worker"

    @property
    def worker_id(self) -> int:
        """The id of its row; 0 before it has one."""
        return 0 if self._row is None else self._row.id

    @property
    def runs(self) -> dict[int, DrawnRun]:
        """The runs that it executes."""
        return {} if self.worker is None else self.worker.pool.drawn

    def start(self) -> None:
        """Join the simulation: write the declared manifests, register, and begin the duties."""
        self.simulation.servers.append(self)
        self.duties.add([Duty(name="start", turn=self._start, poll_seconds=lambda: START_PAUSE)])

    def crash(self) -> None:
        """Lose everything in memory. The row of the worker stays until other servers miss its heartbeat."""
        self.log("is gone; it held runs %s", list_ids(self.runs))
        self._leave()

    def suspend(self, seconds: float) -> None:
        """Do nothing for a while, like a process that is suspended or swapped out; then continue."""
        self.suspended_until = self.simulation.now + timedelta(seconds=seconds)

    def stop(self) -> None:
        """SIGTERM: claim nothing more, let runs end, and put the rest back when the grace period is over."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.log("is asked to stop; it holds runs %s", list_ids(self.runs))
        self.duties.remove(DutyKind.INTAKE, DutyKind.HOUSEKEEPING)
        if self.worker is not None:
            self.worker.stop()
            grace = self.context.settings.shutdown_timeout.total_seconds()
            self.after(grace, partial(self.worker.pool.interrupt_all, "the worker stops"))
        self.duties.add([Duty(name="leave", turn=self._try_to_leave, poll_seconds=lambda: START_PAUSE)])

    def handles(self, topic: Topic) -> bool:
        """Whether a duty here handles the topic, so that other servers need no announcement."""
        name = HANDLED_BY.get(topic)
        return name is not None and name in self.duties and is_enabled(self.context, name)

    def clock(self) -> float:
        """The seconds of its own clock."""
        return self.simulation.now.timestamp() * self.clock_rate

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Schedule an event after this many seconds of its own clock."""
        moment = self.simulation.now + timedelta(seconds=seconds / self.clock_rate)
        self.simulation.at(self.simulation.round_off(moment), act, self)

    def note_turn(self, name: str, result: Any) -> None:
        """Note what a turn of a duty has done, as the heartbeat thread and the log of a server do."""
        match result:
            case DispatchResult() if result.metadata_ids or result.claimed:
                text = "dispatcher: runs %s admitted, %s of them started here"
                self.log(text, list_ids(result.metadata_ids), len(result.claimed))
            case ManagerResult() if result.has_changes:
                text = "manager: %s entries queued, dead letters %s, lost runs %s"
                letters, lost = sorted(result.dead_letters), sorted(result.reaped)
                self.log(text, len(result.queued), list_ids(letters), list_ids(lost))
            case _ if name == "heartbeat":
                self.context.heartbeat.note_heartbeat(self.simulation.now)
            case [*repaired] if name == "watchdog" and repaired:
                self.log("watchdog: manifests %s had no next due time", list_ids(sorted(repaired)))
                self.simulation.counts["repaired manifests"] += len(repaired)
            case _:
                pass

    async def _start(self) -> Turn:
        store, retiring = self._store, None
        if self.schedules:
            self.context.heartbeat.declares = declaration_digest(self._timetable)
            plan = await store.call(self._start_up)
            self.log("starts; it declares %s manifests", len(self._timetable.manifests))
            if plan.retired.postponed:
                retiring = RetirementPlan(self._timetable, plan.retired.postponed)
        if self.role != "scheduler":
            self.worker = self._row = await SimulatedWorker.start(
                self.context, store, self.slots, dispatches=self.schedules, clock=self.clock, server=self
            )
        else:
            self._row = await SchedulerRow(self.context, store).register()
        self.duties.remove()
        duties = build_duties(
            self.context,
            store,
            self.duties.turns_of,
            schedules=self.schedules,
            row=self._row,
            retiring=retiring,
        )
        self.duties.add(
            self._adapt(duty)
            for duty in duties
            if self.has_housekeeping or duty.kind is not DutyKind.HOUSEKEEPING
        )
        return Turn()

    def _start_up(self, connection: Connection) -> SeedPlan:
        settings, streak = self.context.live.refresh(connection), self.context.heartbeat.streak
        return start_up(connection, self._store, self._timetable, settings, None, self.context.name, streak)

    def _adapt(self, duty: Duty) -> Duty:
        """The duty with fewer turns where they would do nothing."""
        if duty.name == "totals":
            return replace(duty, poll_seconds=lambda: TOTALS_SECONDS)
        if duty.name == "manifest_manager" and not self.has_housekeeping:
            return replace(duty, turn=partial(self._manage_if_due, duty))
        return duty

    async def _manage_if_due(self, manager: Duty) -> Turn:
        seconds = await self._store.ask(seconds_to_next_due, self._store)
        return Turn(next_in=seconds) if seconds != 0 else await manager.turn()

    async def _try_to_leave(self) -> Turn:
        """Remove the row, once everything is written."""
        if self.worker is None or self.worker.is_drained:
            if self._row is not None:
                await self._store.call(announce_capacity)
                await self._row.unregister()
            self.log("has stopped")
            self._leave()
        return Turn()

    def _leave(self) -> None:
        self.is_alive = False
        self.duties.remove()
        self.simulation.servers.remove(self)


def build_process_parts(context: AppContext) -> AppContext:
    """The same app as a process of its own, whose heartbeats are those of the simulation."""
    events, telemetry = Events(), Telemetry()
    telemetry.now = None
    heartbeat = Heartbeat(context.store, context.live, context.identity, context.name, context.trains)
    heartbeat.is_manual, heartbeat.watch = True, HeartbeatStreak.empty()
    return replace(
        context,
        events=events,
        telemetry=telemetry,
        heartbeat=heartbeat,
        counters=ProcessCounters(),
        run_log=RunLog(context.live, events),
    )
