"""A server of a simulation: its duties call the engine as in a real server; only its jobs are drawn.

Each turn of a duty is an event, and each of its transactions is one of the engine's. A duty runs again by the
rules of `server/loops.py`: when a topic wakes it, at a time that the engine returned, or at a poll.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from trax.engine.dead_letters import clean_dead_letters
from trax.engine.finish import finish, finish_plain, is_plain
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.engine.metadata_cleanup import DisposableTrains, clean_metadata
from trax.engine.rescue import repair_silent_manifests
from trax.engine.routing import FleetCache
from trax.engine.schedule import start_up
from trax.engine.seed import declaration_digest, retire_undeclared
from trax.errors import StoreError
from trax.events import Topic
from trax.inspect.simulated_store import ServerStore
from trax.inspect.simulation import Duties, list_ids, outcome_of
from trax.records.states import CancelReason
from trax.records.worker import HeartbeatStreak, WorkerKind
from trax.store import groups, stats, workers
from trax.store.announce import announce
from trax.store.dialect import take_leader_lock
from trax.store.manifests import manifest_due
from trax.store.runs import claim, metadata
from trax.store.runs.claim import Claimed
from trax.train import Cancelled, Done, Interrupted, Outcome
from trax.worker.app_context import ANY_WORK
from trax.worker.dispatcher import Dispatcher
from trax.worker.job_runner import build_result, success_result
from trax.worker.loop import announce_capacity, interval_seconds
from trax.worker.worker import ClaimTracker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from datetime import datetime

    from trax.engine.job_dispatcher import DispatchResult
    from trax.engine.manifest_manager import ManagerResult
    from trax.engine.seed import SeedPlan
    from trax.inspect.simulation import Simulation, Workload
    from trax.records.result import RunResult
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store
    from trax.store.runs.claim import ClaimRequest, HeldRun
    from trax.worker.app_context import AppContext
    from trax.worker.results import WriteResults

Role = Literal["all", "scheduler", "worker"]

START_PAUSE: Final = 2.0
FLUSH_PAUSE: Final = 0.005
"""Results of runs that end together are written together."""
LOST_RACE_PAUSE: Final = 0.05
CLEAN_UP_SECONDS: Final = 3600.0
RETIRE_SECONDS: Final = 60.0
TOTALS_SECONDS: Final = 600.0
WATCHDOG_SECONDS: Final = 300.0
WOKEN_BY: Final = {
    Topic.MANIFEST: ("manage",),
    Topic.WORK_QUEUE: ("dispatch",),
    Topic.PENDING: ("claim", "dispatch"),
    Topic.CANCEL: ("heartbeat",),
    Topic.SETTING: ("manage", "dispatch", "claim", "heartbeat", "clean_metadata"),
}


@dataclass(slots=True)
class RunHere:
    """A run that this server executes."""

    job: Claimed
    outcome: Outcome[Any]


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
        self.name = name
        self.context = context
        self.role: Role = role
        self.slots = slots
        self.has_housekeeping = has_housekeeping
        """Whether it runs cleanup and watchdog; if not, the manager also runs only when a manifest is due."""
        self.is_alive = True
        self.suspended_until: datetime | None = None
        self.clock_rate = 1.0
        """The speed of its own clock, relative to the clock of the database."""
        self.worker_id = 0
        self.runs: dict[int, RunHere] = {}
        self.results: list[RunResult] = []
        self.is_stopping = False
        self._simulation = simulation
        self.duties = Duties(simulation, self)
        self._timetable = timetable
        self._workload = workload
        self._streak = HeartbeatStreak.empty()
        self._last_heartbeat_at = simulation.now
        self._claims = ClaimTracker()
        self._manager_fleets = FleetCache()
        self._dispatcher = _LoggedDispatcher(self, simulation)
        self._cycles = 0
        self._postponed: set[str] = set()

    @property
    def schedules(self) -> bool:
        return self.role != "worker"

    @property
    def works(self) -> bool:
        return self.role != "scheduler"

    @property
    def has_enough_backlog(self) -> bool:
        """Whether all slots are in use."""
        return self._free_slots <= 0

    @property
    def has_plain_results(self) -> bool:
        """Whether there are results to write, and nothing follows from them."""
        return bool(self.results) and is_plain(self.results)

    @property
    def is_registered(self) -> bool:
        return self.worker_id != 0

    def start(self) -> None:
        """Join the simulation: write the declared manifests, register, and begin the duties."""
        self._simulation.servers.append(self)
        self.duties.add("start", self._start, lambda: START_PAUSE, seconds=0.0)

    def crash(self) -> None:
        """Lose everything in memory. The row of the worker stays until other servers miss its heartbeat."""
        self._simulation.log(self.name, "is gone; it held runs %s", list_ids(self.runs))
        self._leave()

    def suspend(self, seconds: float) -> None:
        """Do nothing for a while, like a process that is suspended or swapped out; then continue."""
        self.suspended_until = self._simulation.now + timedelta(seconds=seconds)

    def stop(self) -> None:
        """SIGTERM: claim nothing more, let runs end, and put the rest back when the grace period is over."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self._simulation.log(self.name, "is asked to stop; it holds runs %s", list_ids(self.runs))
        self.duties.remove(self.duties.names - {"flush", "heartbeat"})
        self.duties.after(self.context.settings.shutdown_timeout.total_seconds(), self._interrupt_all)
        self.duties.add("leave", self._try_to_leave, lambda: START_PAUSE, seconds=0.0)

    def handles(self, topic: Topic) -> bool:
        """Whether a loop here handles the topic, so that other servers need no announcement."""
        settings = self.context.settings
        return (
            topic is Topic.MANIFEST and "manage" in self.duties and settings.manifest_manager_enabled
        ) or (topic is Topic.WORK_QUEUE and "dispatch" in self.duties and settings.job_dispatcher_enabled)

    def wake(self, topic: Topic, seconds: float = 0.0) -> None:
        for name in WOKEN_BY.get(topic, ()):
            self.duties.request(name, seconds)

    # turns

    def _start(self) -> None:
        if self.schedules:
            self.context.heartbeat.declares = declaration_digest(self._timetable)
            plan = self._transact("start", self._start_up)
            self._postponed = set(plan.retired.postponed)
            self._log("starts; it declares %s manifests", len(self._timetable.manifests))
        self._register()
        self.duties.remove({"start"})
        poll = partial(interval_seconds, self.context)
        self.duties.add("heartbeat", self._heartbeat, lambda: poll("heartbeat"), seconds=poll("heartbeat"))
        if self.schedules:
            self.duties.add("manage", self._manage, lambda: poll("manifest_manager_polling"), seconds=0.0)
            self.duties.add("dispatch", self._dispatch, lambda: poll("job_dispatcher_polling"), seconds=0.0)
        if self.schedules and self.has_housekeeping:
            self.duties.add("clean_metadata", self._clean_metadata, lambda: poll("metadata_cleanup"))
            self.duties.add("clean_dead_letters", self._clean_dead_letters, lambda: CLEAN_UP_SECONDS)
            self.duties.add("watchdog", self._watch, lambda: WATCHDOG_SECONDS)
            self.duties.add("totals", self._add_totals, lambda: TOTALS_SECONDS)
        if self._postponed:
            self.duties.add("retire", self._retire, lambda: RETIRE_SECONDS)
        if self.works:
            last = self._simulation.is_coarse
            self.duties.add("flush", self._flush, lambda: poll("local_polling"), comes_last=last)
        if self.role == "worker":
            self.duties.add("claim", self._claim, lambda: poll("local_polling"), seconds=0.0)

    def _start_up(self, connection: Connection) -> SeedPlan:
        settings = self.context.live.refresh(connection)
        return start_up(
            connection, self._store, self._timetable, settings, None, self.context.name, self._streak
        )

    def _register(self) -> None:
        row = {"kind": WorkerKind.SCHEDULER, "dispatches": True}
        if self.works:
            row = {"kind": WorkerKind.WORKER, "dispatches": self.schedules, "concurrency": self.slots}
            row |= ANY_WORK.worker_columns(self.context)
        self.worker_id = self._transact("register", self.context.heartbeat.register, self._store, row)
        self._last_heartbeat_at = self._simulation.now

    def _manage(self) -> float | None:
        if not self.has_housekeeping and (seconds := self._seconds_to_next_due()) != 0:
            return seconds
        self._cycles += 1
        turn = ManagerInput(self._cycles, self._streak, self._manager_fleets)
        managed = self._transact("manage", self._run_manager_cycle, turn)
        if not self.context.settings.manifest_manager_enabled:
            return None
        if managed is not None:
            if managed.queued or managed.dead_letters:
                text = "manager: %s entries queued, dead letters %s"
                self._log(text, len(managed.queued), list_ids(managed.dead_letters))
            if managed.reaped:
                self._log("manager: runs %s lost their worker", list_ids(managed.reaped))
            if managed.stale_priorities:
                self._transact("apply_priorities", self._apply_priorities)
            if managed.run_again:
                return 0.0
        seconds = self._seconds_to_next_due()
        return seconds if managed or seconds is None else max(seconds, LOST_RACE_PAUSE)

    def _seconds_to_next_due(self) -> float | None:
        next_due = self._simulation.read(manifest_due.load_next_due)
        return None if next_due is None else self._seconds_until(next_due)

    def _run_manager_cycle(self, connection: Connection, turn: ManagerInput) -> ManagerResult | None:
        accept = self.context.live.accept
        managed = run_manager_cycle(
            connection, self._store, self.context.settings, turn, settings_from_rows=accept
        )
        if managed is not None and managed.reaped:
            announce(connection, Topic.WORK_QUEUE)  # the capacity of those runs is free
        return managed

    def _dispatch(self) -> float | None:
        seconds = self._simulation.complete(self._dispatcher.turn())
        if not seconds:
            return seconds
        return self._seconds_until(self._simulation.now + timedelta(seconds=seconds))

    async def dispatch_and_claim(
        self, dispatch: Callable[[ClaimRequest], Awaitable[DispatchResult]]
    ) -> DispatchResult:
        """Run a dispatch cycle that also claims for the free slots; the claimed runs start at once."""
        async with self._claims:
            dispatched = await dispatch(self._claim_request())
            self._begin(dispatched.claimed)
        return dispatched

    def _claim(self) -> None:
        request = self._claim_request()
        if request.slots:
            jobs = self._transact("claim", claim.claim, request, now=self._simulation.now)
            if jobs:
                self._log("worker: runs %s claimed", list_ids(job.metadata_id for job in jobs))
            self._begin(jobs)

    def _flush(self) -> None:
        """Write results, unless the dispatcher does it."""
        if self._dispatcher.takes_results():
            return
        if self._simulation.complete(self.flush()) and not self._dispatcher.on_runs_ended():
            self.wake(Topic.PENDING)
            self._transact("announce", announce_capacity)

    async def flush(self, write: WriteResults | None = None) -> int:
        """Write results; those that could not be written are written later. Returns their number."""
        if not self.results:
            return 0
        results, self.results = self.results, []
        try:
            written = await (write or self._write_results)(results)
            ids = {result.metadata_id for result in written}
            refused = [result for result in results if result.metadata_id not in ids]
            recorded = self._simulation.read(metadata.find_already_finished, refused) if refused else ()
        except StoreError:
            self.results = results + self.results
            raise
        for result in results:
            verdict = "refused: the run was reassigned"
            if result.metadata_id in ids:
                verdict = "written"
            elif result.metadata_id in recorded:
                verdict = "was written before"
            name = result.failure_exception or ""
            self._log("worker: run %s %s %s: %s", result.metadata_id, result.kind.value, name, verdict)
        return len(results)

    async def _write_results(self, results: Sequence[RunResult]) -> Sequence[RunResult]:
        store = ServerStore(self._simulation, self, "flush")
        if is_plain(results):
            return await finish_plain(store, results)
        return await store.call(finish, results, self.context.settings, store=self._store)

    def _heartbeat(self) -> None:
        """Send a heartbeat; stop runs that were asked to stop, and return orphans to the queue."""
        before = self._claims.snapshot([*self.runs, *(result.metadata_id for result in self.results)])
        is_registered, held = self._transact("heartbeat", self._record_heartbeat)
        settings, now = self.context.settings, self._simulation.now
        longest = max(settings.worker_lost_after / 2, settings.heartbeat_interval * 1.5)
        self._streak = self._streak.after_heartbeat(now, longest)
        if not is_registered:
            self._register_again()
        self._last_heartbeat_at = now
        for run in held:
            if run.cancel_reason is not None and run.metadata_id in self.runs:
                is_timeout = run.cancel_reason is CancelReason.TIMEOUT
                self._end_early(run.metadata_id, Cancelled("asked to stop", timed_out=is_timeout))
        if is_registered:
            orphans = self._claims.orphans((run.metadata_id for run in held), before)
            self._put_back(run for run in held if run.metadata_id in orphans)

    def _record_heartbeat(self, connection: Connection) -> tuple[bool, list[HeldRun]]:
        self.context.live.refresh(connection)
        now = self._store.now(connection)
        is_registered = workers.record_heartbeat(
            connection, self.worker_id, concurrency=self._row_slots, now=now
        )
        return is_registered, claim.load_held_runs(connection, self.worker_id)

    def _register_again(self) -> None:
        self._log("worker %s missed its heartbeat; it registers again", self.worker_id)
        for run_id in list(self.runs):
            self._end_early(run_id, Interrupted("the worker missed its heartbeat"))
        self._register()

    def _clean_metadata(self) -> float | None:
        names = self.context.trains.synonyms(self.context.settings.metadata_cleanup_trains)
        cleaned = self._transact(
            "clean_metadata", clean_metadata, self._store, self.context.settings, DisposableTrains(names)
        )
        return 0.0 if cleaned.run_again else None

    def _clean_dead_letters(self) -> None:
        self._transact("clean_dead_letters", clean_dead_letters, self._store, self.context.settings)

    def _watch(self) -> None:
        repaired = self._transact(
            "watchdog", repair_silent_manifests, self.context.settings, now=self._simulation.now
        )
        if repaired:
            self._log("watchdog: manifests %s had no next due time", list_ids(repaired))
        self._simulation.counts["repaired manifests"] += len(repaired)

    def _add_totals(self) -> float | None:
        step = self._simulation.read(stats.next_step, now=self._simulation.now)
        if step is None:
            return None
        return 0.0 if self._transact("totals", stats.add, step) and step.more else None

    def _retire(self) -> None:
        if self._postponed:
            left = self._transact("retire", self._retire_postponed)
            self._postponed &= left

    def _retire_postponed(self, connection: Connection) -> set[str]:
        take_leader_lock(connection)
        now, only = self._store.now(connection), self._postponed
        result = retire_undeclared(
            connection, self._timetable, self.context.settings, app=self.context.name, now=now, only=only
        )
        return set(result.postponed)

    def _apply_priorities(self, connection: Connection) -> None:
        groups.apply_priorities(connection, now=self._store.now(connection))

    # runs

    def _begin(self, jobs: Iterable[Claimed]) -> None:
        """Execute the jobs: draw what their code does, and let it end then, or at the timeout."""
        default = self.context.settings.default_job_timeout.total_seconds()
        for job in jobs:
            self._simulation.observer.on_start(self, job.metadata_id)
            seconds, raised = self._workload.draw(job, self)
            limit = default if job.timeout_seconds is None else job.timeout_seconds
            outcome = outcome_of(job, raised)
            if seconds > limit:
                seconds, outcome = limit, Cancelled("timed out", timed_out=True)
            self.runs[job.metadata_id] = RunHere(job, outcome)
            self.duties.after(seconds, partial(self._end, job.metadata_id))

    def _end(self, metadata_id: int) -> None:
        """The code of a run has ended: its result waits to be written."""
        run = self.runs.pop(metadata_id, None)
        if run is None:
            return
        self.results.append(self._build_result(run.job, run.outcome))
        is_coarse = self._simulation.is_coarse
        if is_coarse or not self._dispatcher.takes_results():
            self.duties.request("flush", 0.0 if is_coarse else FLUSH_PAUSE)
        self._dispatcher.on_slots_free()

    def _end_early(self, metadata_id: int, outcome: Outcome[Any]) -> None:
        self.runs[metadata_id].outcome = outcome
        self._end(metadata_id)

    def _put_back(self, runs: Iterable[Claimed | HeldRun]) -> None:
        for run in runs:
            self._log("run %s is held, but not known here; it is returned to the queue", run.metadata_id)
            self.results.append(self._build_result(run, Interrupted("orphaned")))
            self.duties.request("flush")

    def _interrupt_all(self) -> None:
        for run_id in list(self.runs):
            self._end_early(run_id, Interrupted("the worker stops"))

    def _build_result(self, job: Claimed | HeldRun, outcome: Outcome[Any]) -> RunResult:
        if isinstance(outcome, Done):
            return success_result(job, None, worker_id=self.worker_id, junctions=None)
        train = self.context.trains.get(job.train)
        return build_result(job, outcome, train, self.context, worker_id=self.worker_id)

    def _try_to_leave(self) -> None:
        """Remove the row of this worker, once everything is written."""
        if not (self.runs or self.results):
            if self.is_registered:
                self._transact("announce", announce_capacity)
                self._transact("leave", workers.remove, self.worker_id)
            self._log("has stopped")
            self._leave()

    # what a process keeps in its memory

    @property
    def _store(self) -> Store:
        return self._simulation.store

    @property
    def _free_slots(self) -> int:
        return self.slots - len(self.runs)

    @property
    def _row_slots(self) -> int:
        return self.slots if self.works else 0

    def _claim_request(self) -> ClaimRequest:
        silent = (self._simulation.now - self._last_heartbeat_at) * self.clock_rate
        is_late = silent > self.context.settings.worker_lost_after
        slots = 0 if self.is_stopping or is_late else max(0, self._free_slots)
        return ANY_WORK.claim_request(
            self.context, worker_id=self.worker_id, slots=slots, cpu_slots=self.slots
        )

    def _seconds_until(self, moment: datetime) -> float:
        now = self._simulation.now
        return 0.0 if moment <= now else (self._simulation.round_up(moment) - now).total_seconds()

    def _transact(self, step: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._simulation.transact(self, step, function, *args, **kwargs)

    def _log(self, text: str, *values: Any) -> None:
        self._simulation.log(self.name, text, *values)

    def _leave(self) -> None:
        self.is_alive = False
        self.runs.clear()
        self.results.clear()
        self.duties.remove(self.duties.names)
        self._simulation.servers.remove(self)


class _LoggedDispatcher(Dispatcher):
    """The dispatcher of a simulated server, whose visits are in the event log."""

    def __init__(self, server: VirtualServer, simulation: Simulation) -> None:
        store, turns = ServerStore(simulation, server, "dispatch"), server.duties.turns_of("dispatch")
        super().__init__(server.context, store, turns, server if server.works else None)
        self._log = partial(simulation.log, server.name)

    async def visit(self, *, writes_results: bool = False) -> DispatchResult:
        dispatched = await super().visit(writes_results=writes_results)
        if dispatched.metadata_ids or dispatched.claimed:
            text = "dispatcher: runs %s admitted, %s of them started here"
            self._log(text, list_ids(dispatched.metadata_ids), len(dispatched.claimed))
        return dispatched
