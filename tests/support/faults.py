"""A fleet that everything may happen to, turn by turn, and the promises that hold whatever does.

The other model predicts each entry. Here nothing is predicted: what was accepted is written down, the engine
goes on by itself, and after each step the rows are held against the promises.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel
from sqlalchemy import delete, select, text, update

from trax import Item, Retry, Trax, cron, every, junction
from trax.app.queue import enqueue_without_code
from trax.engine.finish import finish, finish_plain, is_plain
from trax.engine.manifest_manager import ManagerInput
from trax.engine.rescue import repair_silent_manifests
from trax.engine.routing import FleetCache
from trax.errors import StoreUnavailable, TraxError
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.schedule.builder import Declarations
from trax.server.loops import manage_now
from trax.server.start import start
from trax.store import workers
from trax.store.runs import claim
from trax.store.runs.claim import Claimed, ClaimRequest
from trax.store.schema import tables
from trax.train import Run
from trax.worker.dispatcher import Dispatcher, dispatch_now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
    from typing import TypeVar

    from sqlalchemy import Connection
    from tests.support.fault_proxy import Fault, FaultProxy

    from trax.engine.job_dispatcher import DispatchResult
    from trax.records.worker import HeartbeatStreak
    from trax.store.runs.claim import HeldRun
    from trax.worker.results import WriteResults

    T = TypeVar("T")

START: Final = datetime(2027, 3, 1, 11, 30, tzinfo=UTC)
LIMIT: Final = 3
GROUP_LIMIT: Final = 1
SETTLED_AT_MOST: Final = 60
MANIFESTS: Final = ("interval", "jittered", "daily", "once", "parent", "child", "sleeper")
TRAINS: Final = ("work", "absent")
ENDS: Final = {
    "success": (ResultKind.SUCCESS, State.COMPLETED, None),
    "failure": (ResultKind.FAILURE, State.FAILED, None),
    "cancelled": (ResultKind.CANCELLED, State.CANCELLED, None),
    "interrupted": (ResultKind.INTERRUPTED, State.CANCELLED, None),
    "snoozed": (ResultKind.INTERRUPTED, State.CANCELLED, timedelta(minutes=7)),
}


class Nothing(BaseModel):
    pass


class RunningJob(NamedTuple):
    """A run that a worker of ours has begun."""

    metadata_id: int
    external_id: str
    manifest_id: int | None
    manifest: str | None
    attempt: int
    worker_id: int


class Site:
    """One server and its workers on a clock that only moves when told. Workers may die, or not be there."""

    def __init__(self, url: str, proxy: FaultProxy | None = None) -> None:
        """With a proxy, faults can be made on the way to the database."""
        self.now = START
        self._proxy = proxy
        self.app = Trax(url, max_active_jobs=LIMIT, default_retry_delay=timedelta(minutes=1))
        self.app.context.store.clock = lambda: self.now
        self.app.context.heartbeat.is_manual = True
        self.store = self.app.context.store.open_blocking()
        self.train = self.app.train("work", junction(_work))
        self._loop = asyncio.Runner()

    def close(self) -> None:
        self.app.close()
        self._loop.close()

    def begin(self) -> None:
        """Empty tables, and one worker that has the train."""
        self.now = START
        self.store.run(_clear)
        self.fleets, self.turns = FleetCache(), 0
        self.watch: HeartbeatStreak | None = None
        self.held: dict[int, RunningJob] = {}
        self.accepted: set[int] = set()
        self.over: dict[int, str] = {}
        self.letters: set[int] = set()
        self.takers = {"work": self._register("work")}
        self.claims_at_gate = True
        self._unwritten: list[RunResult] = []
        self._has_lost_claims = False
        gate: Any = self.store.engine_lane if self._proxy else self.store
        self._dispatcher = Dispatcher(self.app.context, gate, self, self, fleets=self.fleets)

    def do(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(verb)

    # what people and code do

    def deploy(self, names: Iterable[str]) -> None:
        """Start a server whose code declares these. What it does not declare any more is removed."""
        code, wanted = Declarations(self.app.context.parameters.input_codec), set(names)
        group = code.group("etl", max_active_jobs=GROUP_LIMIT)  # always: its limit is checked from the start
        work, nothing = self.train, Nothing()
        retry = Retry(max_retries=2, delay=timedelta(minutes=1))
        if "interval" in wanted:
            code.schedule(work, "interval", nothing, every(minutes=5), group=group)
        if "jittered" in wanted:
            code.schedule(work, "jittered", nothing, every(minutes=5, variance=timedelta(minutes=2)))
        if "daily" in wanted:
            code.schedule(work, "daily", nothing, cron("0 12 * * *"), group=group, retry=retry)
        if "once" in wanted:
            code.schedule_once(work, "once", nothing, timedelta(minutes=3))
        if "parent" in wanted:
            chain = code.schedule(work, "parent", nothing, every(minutes=10), retry=retry)
            if "child" in wanted:
                chain.include(work, "child", nothing)
            if "sleeper" in wanted:
                chain.include_many(work, "sleeper", [Item("1", nothing)], dormant=True)
        self.do(start(self.store, code.timetable(), self.app.context.settings))

    @contextmanager
    def fault(self, fault: Fault | None) -> Generator[None]:
        """The next commit in this block has this fault; what it raises is for whoever tries again."""
        if self._proxy is None:
            yield
            return
        if fault is not None:
            self._proxy.inject(fault)
        try:
            with suppress(StoreUnavailable):
                yield
        finally:
            self._proxy.clear()

    def queue(self, train: str, *, unique: str | None, group: str | None, minutes: int) -> None:
        delay = timedelta(minutes=minutes) if minutes else None
        how: Any = {"unique": unique, "group": group, "delay": delay}
        self.accepted.add(self.do(enqueue_without_code(self.app.context, train, {}, how)).id)

    def act(self, verb: Coroutine[Any, Any, Any]) -> None:
        """What an operator does; a refusal is an answer, too."""
        with suppress(TraxError):
            self.do(verb)

    def activate(self, metadata_id: int) -> None:
        """A run of the parent wakes its dormant dependent."""
        held = self.held[metadata_id]
        run = Run(
            metadata_id=held.metadata_id,
            external_id=held.external_id,
            train="work",
            manifest=held.manifest,
            activator=self.app.context.activator,
        )
        self.act(run.activate("sleeper-1", Nothing()))

    # what goes on by itself, or goes wrong

    def switch_worker(self, train: str) -> None:
        """A worker that has this train comes, or the one that had it is gone without a word."""
        if train in self.takers:
            gone = self.takers.pop(train)
            self.store.run(_silence, gone)
        else:
            self.takers[train] = self._register(train)

    def cycle(self) -> bool:
        for worker_id in self.takers.values():
            if not self.store.run(workers.record_heartbeat, worker_id, concurrency=4, now=self.now):
                raise AssertionError(f"live worker {worker_id} was declared lost")
        turn, self.turns = ManagerInput(self.turns, self.watch, self.fleets), self.turns + 1
        self._write()
        self._return_orphans()
        managed = self.store.run(manage_now, self.store, self.app.context, turn)
        assert managed is not None
        dispatched = self._dispatch()
        return managed.has_changes or managed.run_again or dispatched.has_changes or dispatched.run_again

    def _dispatch(self) -> DispatchResult:
        """A visit of this server: as one with a worker of its own, or as a scheduler alone."""
        if self.claims_at_gate and "work" in self.takers:
            return self.do(self._dispatcher.visit(writes_results=self.has_plain_results))
        return self.store.run(dispatch_now, self.store, self.app.context, None, self.fleets)

    # what the dispatcher sees of its loop and of its worker

    is_requested = True
    is_stopping = False
    has_enough_backlog = False

    def wake(self) -> None:
        """The next cycle comes in any case."""

    @property
    def has_plain_results(self) -> bool:
        return bool(self._unwritten) and is_plain(self._unwritten)

    async def dispatch_and_claim(
        self, dispatch: Callable[[ClaimRequest], Awaitable[DispatchResult]]
    ) -> DispatchResult:
        self._has_lost_claims = True
        dispatched = await dispatch(self._request("work"))
        self._hold(dispatched.claimed, self.takers["work"])
        self._has_lost_claims = False
        return dispatched

    async def flush(self, write: WriteResults | None = None) -> int:
        results = self._unwritten
        await (write or partial(finish_plain, self.store))(results)
        self._unwritten = []
        return len(results)

    def _write(self) -> None:
        """Write the results that are left, unless the next visit does it."""
        if self._unwritten and not (self.claims_at_gate and self.has_plain_results):
            self.store.run(finish, self._unwritten, self.app.context.settings, store=self.store)
            self._unwritten = []

    def _return_orphans(self) -> None:
        """Put back runs that were claimed in a transaction whose answer was lost."""
        if not self._has_lost_claims:
            return
        known = self.held.keys() | {result.metadata_id for result in self._unwritten}
        for worker_id in self.takers.values():
            held = self.store.read(claim.load_held_runs, worker_id)
            for run in held:
                if run.metadata_id not in known:
                    self._hold([run], worker_id)
                    self.end(run.metadata_id, "interrupted")
        self._has_lost_claims = False

    def settle(self) -> None:
        """Until nothing changes at this moment."""
        for _ in range(SETTLED_AT_MOST):
            if not self.cycle():
                return
        raise AssertionError("it never comes to rest")

    def start_next(self) -> None:
        """The workers claim what is pending, into four slots each."""
        for train, worker_id in self.takers.items():
            self._has_lost_claims = True
            self._hold(self.store.run(claim.claim, self._request(train), now=self.now), worker_id)
            self._has_lost_claims = False

    def _request(self, train: str) -> ClaimRequest:
        worker_id = self.takers[train]
        slots = 4 - sum(run.worker_id == worker_id for run in self.held.values())
        return ClaimRequest(worker_id, "here", max(0, slots), frozenset({train}))

    def _hold(self, runs: Iterable[Claimed | HeldRun], worker_id: int) -> None:
        for run in runs:
            assert run.metadata_id not in self.over, f"run {run.metadata_id} began after its end"
            manifest = run.manifest if isinstance(run, Claimed) else None
            self.held[run.metadata_id] = RunningJob(
                run.metadata_id, run.external_id, run.manifest_id, manifest, run.attempt, worker_id
            )

    def end(self, metadata_id: int, how: str) -> None:
        held = self.held.pop(metadata_id)
        kind, state, delay = ENDS[how]
        ended = RunResult(
            metadata_id,
            held.external_id,
            held.worker_id,
            state,
            kind,
            manifest_id=held.manifest_id,
            attempt=held.attempt,
            failure_exception=how,
            failure_reason=how,
            delay=delay,
        )
        self._unwritten.append(ended)
        if not (self.claims_at_gate and self.has_plain_results):
            self._write()

    def _register(self, train: str) -> int:
        is_ours = train == "work"
        row = {"kind": "worker", "concurrency": 4, "trains": json.dumps([train]), "dispatches": is_ours}
        return self.store.run(self.app.context.heartbeat.register, self.store, row)

    # the promises

    def check(self) -> None:
        seen = self.store.read(_load_state)
        self._nothing_is_lost(seen)
        self._nothing_ends_twice(seen)
        self._limits_hold(seen)
        self._nobody_is_queued_twice(seen)
        self.held = {one: run for one, run in self.held.items() if seen.runs[one].state == "in_progress"}

    def check_at_rest(self) -> None:
        self.settle()
        self.check()
        silent = self.store.run(repair_silent_manifests, self.app.context.settings, now=self.now)
        assert silent == [], f"{silent} would never have run again"

    def _nothing_is_lost(self, seen: StoredState) -> None:
        assert self.accepted <= seen.entries.keys(), "an accepted entry is gone"
        assert self.over.keys() <= seen.runs.keys(), "a record is gone"
        assert self.letters <= seen.letters.keys(), "a dead letter is gone"
        self.letters = set(seen.letters)
        for entry in seen.entries.values():
            if entry.status == "dispatched":
                run = seen.runs[entry.metadata_id]
                is_put_back = run.failure_exception in {"interrupted", "snoozed", "NoWorker"}
                assert not is_put_back, f"entry {entry.id} was put back, and is not in the queue"
                if run.state == "failed" and entry.manifest_id is None:
                    letters = {letter.last_metadata_id for letter in seen.letters.values()}
                    assert run.id in letters, f"entry {entry.id} failed for good without a dead letter"

    def _nothing_ends_twice(self, seen: StoredState) -> None:
        for run in seen.runs.values():
            if run.ended_at is not None:
                assert self.over.setdefault(run.id, run.state) == run.state, f"run {run.id} ended twice"

    def _limits_hold(self, seen: StoredState) -> None:
        active = [run for run in seen.runs.values() if run.ended_at is None]
        assert len(active) <= LIMIT
        groups = Counter(run.group_id for run in active)
        assert groups[seen.group_ids.get("etl", -1)] <= GROUP_LIMIT

    def _nobody_is_queued_twice(self, seen: StoredState) -> None:
        queued = [entry for entry in seen.entries.values() if entry.status == "queued"]
        scheduled = Counter(entry.manifest_id for entry in queued if entry.origin in {"schedule", "retry"})
        assert not scheduled or max(scheduled.values()) == 1


class StoredState(NamedTuple):
    """The rows, by their ids."""

    entries: dict[int, Any]
    runs: dict[int, Any]
    letters: dict[int, Any]
    group_ids: dict[str, int]


def _load_state(connection: Connection) -> StoredState:
    t = tables(connection)
    ours = select(t.metadata).where(text("train NOT LIKE 'trax.%'"))
    return StoredState(
        entries={row.id: row for row in connection.execute(select(t.work_queue))},
        runs={row.id: row for row in connection.execute(ours)},
        letters={row.id: row for row in connection.execute(select(t.dead_letter))},
        group_ids={row.name: row.id for row in connection.execute(select(t.manifest_group))},
    )


def _clear(connection: Connection) -> None:
    t = tables(connection)
    for table in (t.work_queue, t.dead_letter, t.metadata, t.manifest, t.manifest_group, t.worker, t.audit):
        connection.execute(delete(table))


def _silence(connection: Connection, worker_id: int) -> None:
    worker = tables(connection).worker
    connection.execute(
        update(worker).where(worker.c.id == worker_id).values(heartbeat_at=START - timedelta(days=1))
    )


def _work(nothing: Nothing) -> Nothing:
    return nothing
