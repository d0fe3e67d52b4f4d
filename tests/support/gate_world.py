"""Servers at one gate, and everything that changes what they may admit, drawn from a seed.

Each server has a dispatcher and a worker as in production, with sessions and a memory of its own. Before each
visit the state is read in full: the visit must admit what was expected, or, if it is a quick one, nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from pydantic import BaseModel
from sqlalchemy import create_engine, text
from tests.support.gate_reference import expected_entries, preview
from tests.support.open_transaction import WAITING
from tests.support.results import run_result

from trax import Trax, junction
from trax.engine.finish import finish_plain
from trax.engine.live_settings import LiveSettings
from trax.records import Origin
from trax.records.metadata import NewRun
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import gate_memory, groups, quick_gate, settings, workers
from trax.store.dialect import take_gate_lock
from trax.store.queue import parking, requeue, work_queue
from trax.store.runs import metadata
from trax.store.url import parse_url
from trax.worker.app_context import ANY_WORK
from trax.worker.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from trax.engine.job_dispatcher import DispatchResult
    from trax.records.result import RunResult
    from trax.store import Connection
    from trax.store.runs.claim import ClaimRequest
    from trax.worker.results import WriteResults

SEEDS: Final = range(1, 1 + int(os.environ.get("TRAX_GATE_SEEDS", "6")))
STEPS: Final = 45
START: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
GROUPS: Final = ("a", "b", "c")
QUEUED_AT_MOST: Final = 150
VISITS_AT_MOST: Final = 40


HELD: Final = "SELECT id FROM trax.metadata WHERE state = 'in_progress' AND worker_id ="
READY_IDS: Final = """
    SELECT id FROM trax.work_queue WHERE status = 'queued' AND ready AND dead_letter_id IS NULL
"""
PARKED_IDS: Final = "SELECT id FROM trax.work_queue WHERE status = 'queued' AND parked = 'work'"
WITHDRAW: Final = "UPDATE trax.work_queue SET status = 'cancelled' WHERE id = ANY(:ids) AND status = 'queued'"
LATEST: Final = "SELECT entry_id FROM trax.metadata WHERE id = ANY(:run_ids)"
OVER: Final = """
    SELECT metadata_id FROM trax.work_queue JOIN trax.metadata AS run ON run.id = metadata_id
    WHERE status = 'dispatched' AND run.state = 'completed'
"""
ADMIT: Final = """
    WITH run AS (
        INSERT INTO trax.metadata
            (entry_id, external_id, train, group_id, priority, attempt, state, submitter, exempt, created_at)
        SELECT id, external_id, train, group_id, priority, attempt, 'pending', 'local', train = 'free', :now
        FROM trax.work_queue WHERE id = :id RETURNING id
    )
    UPDATE trax.work_queue SET status = 'dispatched', metadata_id = run.id, dispatched_at = :now
    FROM run WHERE work_queue.id = :id
"""
END: Final = """
    UPDATE trax.metadata SET state = 'completed', ended_at = :now
    WHERE id = ANY(:ids) AND state = 'in_progress' AND worker_id = :worker_id
"""
END_DIRECT: Final = "UPDATE trax.metadata SET state = 'completed', ended_at = now() WHERE id = ANY(:ids)"
UNCLAIM: Final = """
    UPDATE trax.metadata SET state = 'pending', worker_id = NULL, started_at = NULL WHERE id = ANY(:ids)
"""
CLEAR: Final = (
    "UPDATE trax.work_queue SET status = 'cancelled' WHERE parked IS NOT NULL OR id = ANY(:ids)",
    "UPDATE trax.metadata SET state = 'failed', ended_at = now() WHERE state = 'pending' OR id = ANY(:ids)",
    "DELETE FROM trax.setting WHERE :ids = :ids",
)
EDIT: Final = """
    UPDATE trax.work_queue SET priority = 9, written_in = pg_current_xact_id() WHERE id = ANY(:ids)
"""
LETTER: Final = """
    INSERT INTO trax.dead_letter (train, status, reason, dead_lettered_at, resolved_at, retry_count)
    VALUES ('work', 'retried', 'it failed', :now, :now, 1) RETURNING id
"""
WRONG_RECORDS: Final = """
    SELECT 'record', entry.id FROM trax.work_queue AS entry LEFT JOIN trax.metadata AS run
        ON run.id = entry.metadata_id AND run.entry_id = entry.id AND run.train = entry.train
        AND run.group_id IS NOT DISTINCT FROM entry.group_id AND run.exempt = (entry.train = 'free')
    WHERE entry.status = 'dispatched' AND run.id IS NULL
    UNION ALL
    SELECT 'runs twice', entry_id FROM trax.metadata WHERE state IN ('pending', 'in_progress')
    GROUP BY entry_id HAVING entry_id IS NOT NULL AND count(*) > 1
    UNION ALL
    SELECT 'not queued', entry.id FROM trax.work_queue AS entry JOIN trax.metadata AS run
        ON run.entry_id = entry.id AND run.state IN ('pending', 'in_progress')
    WHERE entry.status <> 'dispatched'
    UNION ALL
    SELECT 'letter', entry.id FROM trax.work_queue AS entry JOIN trax.dead_letter AS letter
        ON letter.id = entry.dead_letter_id
    WHERE entry.status = 'dispatched' AND letter.retry_metadata_id IS DISTINCT FROM entry.metadata_id
"""


class Nothing(BaseModel):
    pass


def _work(nothing: Nothing) -> Nothing:
    return nothing


def visit_gate(url: str, seed: int) -> Counter[str]:
    """Make the visits of one seed in an empty database; returns how many there were of each kind."""
    with closing(GateWorld(url, seed)) as world:
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {world.now:%H:%M:%S}: {error}") from error
        return world.counts


class Requested:
    """The turns of a dispatcher that is driven by hand."""

    is_requested = True
    is_stopping = False

    def wake(self) -> None:
        """The next visit comes in any case."""


class GateServer:
    """A server in all roles: its dispatcher, and the slots of its worker."""

    def __init__(self, url: str, world: GateWorld, trains: Sequence[str], base: dict[str, Any]) -> None:
        self.base = base
        self.app = Trax(url, **base)
        for name in trains:
            self.app.train(name, junction(_work), exclude_from_max_active_jobs=name == "free")
        context = self.app.context
        context.store.clock = lambda: world.now
        context.heartbeat.is_manual = True
        self.store = context.store.open_blocking().engine_lane
        row = {"kind": "worker", "concurrency": 50, "dispatches": True, **ANY_WORK.worker_columns(context)}
        self.worker_id = self.store.run(context.heartbeat.register, self.store, row)
        self.slots = 1
        self.results: list[RunResult] = []
        self.has_enough_backlog = False
        self.dispatcher = Dispatcher(context, self.store, Requested(), self)

    @property
    def has_plain_results(self) -> bool:
        return bool(self.results)

    def request(self) -> ClaimRequest:
        cpu_slots = self.slots
        return ANY_WORK.claim_request(
            self.app.context, worker_id=self.worker_id, slots=self.slots, cpu_slots=cpu_slots
        )

    async def dispatch_and_claim(
        self, dispatch: Callable[[ClaimRequest], Awaitable[DispatchResult]]
    ) -> DispatchResult:
        return await dispatch(self.request())

    async def flush(self, write: WriteResults | None = None) -> int:
        results, self.results = self.results, []
        written = await write(results) if write else await finish_plain(self.store, results)
        return len(written)

    def close(self) -> None:
        self.store.run(workers.remove, self.worker_id)
        self.app.close()


class GateWorld:
    """The state of one database and the servers that visit its gate."""

    def __init__(self, url: str, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        self.now = START
        self.url = url
        self.counts: Counter[str] = Counter()
        self._runner = asyncio.Runner()
        self._callers = create_engine(parse_url(url))
        self._open: list[Any] = []
        """Transactions of callers that are not committed yet."""
        self._elsewhere: list[int] = []
        self._parked: list[int] = []
        """Parked entries that a worker accepts."""
        limit = self.random.choice([None, 3, 6, 12])
        base = {"max_active_jobs": limit, "max_queued_jobs_per_cycle": self.random.choice([None, 3, 100])}
        self.servers = [GateServer(url, self, ("work", "other", "free"), base) for _ in range(2)]
        self.store = self.servers[0].store
        self.store.run(groups.get_or_create, GROUPS, now=self.now)
        self._groups = {group.name: group for group in self.store.read(groups.load_list)}
        self._spare: GateServer | None = None

    def close(self) -> None:
        for transaction in self._open:
            transaction.close()
        for server in (*self.servers, *([self._spare] if self._spare else [])):
            server.close()
        self._callers.dispose()
        self._runner.close()

    def run(self, steps: int = STEPS) -> None:
        with self._counted_visits():
            for _ in range(steps):
                self.now += timedelta(seconds=self.random.choice([0, 1, 1, 3]))
                self._change()
                way = self.random.random()
                if way < 0.15:
                    self._visit_while_another_is_open()
                elif way < 0.25:
                    self._visit_while_entries_are_withdrawn()
                else:
                    self._visit_until_done()
                if self.random.random() < 0.2:
                    self.store.read(self._check_records)
            self.store.read(self._check_records)

    @contextmanager
    def _counted_visits(self) -> Generator[None]:
        """Note what each quick visit says of itself."""
        read = quick_gate.read_visit

        def note(*arguments: Any) -> quick_gate.QuickVisit:
            self._quick = read(*arguments)
            return self._quick

        self._quick: quick_gate.QuickVisit | None = None
        with (
            patch.object(quick_gate, "read_visit", note),
            patch.object(gate_memory, "SLOW_VISITS", 1),
        ):
            yield

    # visits

    def _visit_until_done(self) -> None:
        server = self.random.choice(self.servers)
        server.slots = self.random.choice([1, 2, 4, 10, 30])
        for _ in range(VISITS_AT_MOST):
            result = self._compare(server, self._expected(server), self._visit(server))
            server.slots -= len(result.claimed)
            if not (result.run_again and server.slots):
                return
        raise AssertionError(f"the visits never end; the last quick one: {self._quick}")

    def _expected(self, server: GateServer) -> list[int]:
        """What both slow ways say; they must agree."""
        self._parked = self._ids(PARKED_IDS)
        with self._callers.connect() as connection:
            expected = self._expected_in(connection, server)
        if not server.results and self.random.random() < 0.4:
            routing, request = server.app.context.routing, server.request()
            decided = preview(self.store, server.base, routing, request).entry_ids
            assert decided == expected, f"a deciding visit admits {decided}, and {expected} could start"
        return expected

    def _expected_in(self, connection: Connection, server: GateServer) -> list[int]:
        """What this transaction sees, once the visit has written the results of the server."""
        base = LiveSettings.load(server.base, {}).current
        with connection.begin_nested() as savepoint:
            ended = [result.metadata_id for result in server.results]
            given = {"ids": ended, "now": self.now, "worker_id": server.worker_id}
            connection.execute(text(END), given)
            found = expected_entries(connection, base, server.request(), now=self.now)
            savepoint.rollback()
        return found

    def _visit(self, server: GateServer) -> DispatchResult:
        return self._runner.run(self._visit_async(server))

    async def _visit_async(self, server: GateServer) -> DispatchResult:
        self._quick = None
        return await server.dispatcher.visit(writes_results=bool(server.results))

    def _compare(self, server: GateServer, expected: list[int], result: DispatchResult) -> DispatchResult:
        quick = self._quick
        if quick is None:
            self.counts["deciding visits"] += 1
            assert result.entry_ids == expected, f"admitted {result.entry_ids}, and {expected} could start"
        elif not quick.is_plain:
            self.counts["quick visits that stepped aside"] += 1
            assert result.entry_ids == [], f"a quick visit that stepped aside admitted {result.entry_ids}"
            assert result.run_again
        else:
            self.counts["quick visits"] += 1
            self.counts["admitted by quick visits"] += len(expected)
            assert result.entry_ids == expected, (
                f"a quick visit admitted {result.entry_ids}, and {expected} could start"
            )
            assert not self._parked, f"a quick visit passed entries {self._parked}, which may leave the park"
        assert len(result.claimed) <= server.slots
        return result

    def _check_records(self, connection: Connection) -> None:
        """Each dispatched entry has one run, with what it says; no run belongs to a queued entry."""
        wrong = connection.execute(text(WRONG_RECORDS)).all()
        assert wrong == [], wrong

    def _visit_while_another_is_open(self) -> None:
        """Another server has admitted entries and not committed yet; a visit must wait for it."""
        server = self.random.choice(self.servers)
        server.slots = self.random.choice([2, 10])
        with self._callers.connect() as other:
            take_gate_lock(other)
            ready = other.execute(text(READY_IDS)).scalars().all()
            for entry_id in self._some(sorted(ready))[:3]:
                other.execute(text(ADMIT), {"id": entry_id, "now": self.now})
            expected, self._parked = self._expected_in(other, server), self._ids(PARKED_IDS)
            result = self._runner.run(self._visit_behind(server, other))
        self.counts["visits that waited"] += 1
        self._compare(server, expected, result)

    def _visit_while_entries_are_withdrawn(self) -> None:
        """A caller withdraws entries and has not committed yet; a visit that wants them must wait for it."""
        server = self.random.choice(self.servers)
        server.slots = 30
        expected = self._expected(server)
        withdrawn = self._some(expected)
        with self._callers.connect() as other:
            other.execute(text(WITHDRAW), {"ids": withdrawn})
            is_wanted = bool(withdrawn)
            result = self._runner.run(self._visit_behind(server, other, must_wait=False))
        if result.entry_ids:
            self.counts["visits of withdrawn entries"] += is_wanted
            left = [entry_id for entry_id in expected if entry_id not in withdrawn]
            assert self._ids(LATEST, run_ids=result.metadata_ids) == sorted(left)

    async def _visit_behind(
        self, server: GateServer, other: Connection, *, must_wait: bool = True
    ) -> DispatchResult:
        visit = asyncio.create_task(self._visit_async(server))
        while not (visit.done() or await asyncio.to_thread(self.store.read, _is_waiting)):
            pass
        assert not (must_wait and visit.done()), "a visit did not wait for the gate"
        other.commit()
        return await visit

    # changes

    def _change(self) -> None:
        """Work comes and goes, and now and then something that a quick visit must step aside for."""
        if self.random.random() < 0.7:
            self._enqueue()
        if self.random.random() < 0.7:
            self._end_runs()
        changes: list[Callable[[], None]] = [
            *([self._commit_late] * 3), *([self._enqueue_late] * 3), *([self._edit_group] * 2),
            *([self._edit_setting] * 4), self._delay, self._put_back, self._begin_directly,
            self._withdraw, self._park, self._unpark, self._join_or_leave, self._park_beside_delayed,
            self._park_beside_delayed,
            self._switch_elsewhere, self._leave_pending, self._raise_priority, self._requeue_letter,
        ]  # fmt: skip
        if self.random.random() < 0.45:
            self.random.choice(changes)()
        elif self.random.random() < 0.25:
            self._clear()

    def _entries(self, count: int, **options: Any) -> list[NewEntry]:
        random = self.random
        entries: list[NewEntry] = []
        for _ in range(count):
            group = self._groups.get(random.choice(["", *GROUPS]))
            train = random.choice(["work"] * 12 + ["other", "free"] + ["absent"] * (random.random() < 0.03))
            given: dict[str, Any] = {"priority": random.choice([0, 0, 0, 5, 31]), **options}
            if group is not None:
                given |= {"group_id": group.id, "group_priority": self._priority_of(group.name)}
            entries.append(NewEntry(external_id=new_external_id(), train=train, origin=Origin.QUEUE, **given))
        return entries

    def _priority_of(self, name: str) -> int:
        found = self.store.read(groups.get, name)
        assert found
        return found.priority

    def _enqueue(self) -> None:
        if len(self._ids("SELECT id FROM trax.work_queue WHERE status = 'queued'")) < QUEUED_AT_MOST:
            count = self.random.choice([1, 2, 5, 5, 20])
            ago = timedelta(seconds=self.random.choice([0, 0, 0, 60]))
            self.store.run(work_queue.add, self._entries(count), now=self.now - ago)

    def _enqueue_late(self) -> None:
        """A caller queues in a transaction of its own, and commits when other visits have been made."""
        connection = self._callers.connect()
        work_queue.add(connection, self._entries(self.random.choice([1, 3])), now=self.now)
        self._open.append(connection)

    def _commit_late(self) -> None:
        if self._open:
            connection = self._open.pop(self.random.randrange(len(self._open)))
            connection.rollback() if self.random.random() < 0.2 else connection.commit()
            connection.close()

    def _delay(self) -> None:
        moment = self.now + timedelta(seconds=self.random.choice([0, 1, 2, 600]))
        self.store.run(work_queue.add, self._entries(2, scheduled_at=moment), now=self.now)

    def _end_runs(self) -> None:
        """Runs end: some are written now, some with the next visit of their server."""
        for server in self.servers:
            ended = {result.metadata_id for result in server.results}
            held = self._ids(f"{HELD} {server.worker_id}")
            ended = self._some([run_id for run_id in held if run_id not in ended])
            results = [run_result(run_id, worker_id=server.worker_id) for run_id in ended]
            if self.random.random() < 0.3:
                server.results += results
            else:
                self.store.run(metadata.finish_and_commit, results, now=self.now)

    def _put_back(self) -> None:
        ids = self._ids(OVER)
        self.store.run(requeue.put_back, dict.fromkeys(self._some(ids)[:2]), attempts=0)

    def _begin_directly(self) -> None:
        """A run of `app.run` begins or ends, in an open transaction or a committed one."""
        ids = self._ids("SELECT id FROM trax.metadata WHERE submitter IS NULL AND ended_at IS NULL")
        if ids and self.random.random() < 0.6:
            self._execute(END_DIRECT, [self.random.choice(ids)])
            return
        exempt = self.random.random() < 0.3
        run = NewRun(external_id=new_external_id(), train="work", exempt=exempt)
        self.store.run(metadata.begin, run, now=self.now)

    def _edit_setting(self) -> None:
        name, values = self.random.choice(
            [
                ("max_active_jobs", ["2", "4", "8", "null"]),
                ("max_queued_jobs_per_cycle", ["1", "4", "100"]),
                ("job_dispatcher_enabled", ["false", "true", "true", "true"]),
                ("default_retry_delay", ['"PT1M"']),
            ]
        )
        if self.random.random() < 0.4:
            self._execute("DELETE FROM trax.setting WHERE :ids = :ids", [])
        else:
            self.store.run(settings.write, {name: self.random.choice(values)}, now=self.now)

    def _edit_group(self) -> None:
        change: dict[str, Any] = self.random.choice(
            [
                *({"max_active_jobs": limit} for limit in (None, 0, 1, 2, 4)),
                *({"priority": priority} for priority in (0, 10, 20)),
                {"enabled": False},
                {"enabled": True},
                {"enabled": True, "max_active_jobs": None},
            ]
        )
        self.store.run(groups.change, self.random.choice(GROUPS), change, now=self.now)
        self.store.run(groups.apply_priorities, now=self.now)

    def _withdraw(self) -> None:
        ids = self._some(self._ids("SELECT id FROM trax.work_queue WHERE status = 'queued'"))[:2]
        self._execute(WITHDRAW, ids)

    def _park(self) -> None:
        ids = self._some(self._ids("SELECT id FROM trax.work_queue WHERE status = 'queued' AND ready"))[:2]
        self.store.run(parking.park, dict.fromkeys(ids, "work"), now=self.now)

    def _park_beside_delayed(self) -> None:
        """Entries leave the park in a visit that has also made delayed entries ready."""
        self.store.run(work_queue.add, self._entries(2), now=self.now)
        ids = self._ids("SELECT id FROM trax.work_queue WHERE status = 'queued' AND ready AND train = 'work'")
        self.store.run(parking.park, dict.fromkeys(self._some(ids)[:4], "work"), now=self.now)
        soon = self.now + timedelta(seconds=1)
        self.store.run(work_queue.add, self._entries(1, scheduled_at=soon), now=self.now)
        self.now += timedelta(seconds=3)

    def _unpark(self) -> None:
        self.store.run(parking.unpark, ["work"], limit=3)

    def _raise_priority(self) -> None:
        """Somebody edits a row, as operators do in plain SQL."""
        ids = self._some(self._ids("SELECT id FROM trax.work_queue WHERE status = 'queued' AND ready"))[:1]
        self._execute(EDIT, ids)

    def _join_or_leave(self) -> None:
        """A server that has one more train starts or stops."""
        if self._spare is None:
            self._spare = GateServer(self.url, self, ("work", "absent"), self.servers[0].base)
        else:
            self._spare.close()
            self._spare = None

    def _switch_elsewhere(self) -> None:
        """A worker that only claims comes or goes: then entries are admitted for its slots, too."""
        if self._elsewhere:
            self.store.run(workers.remove, self._elsewhere.pop())
            return
        context = self.servers[0].app.context
        row = {"kind": "worker", "concurrency": self.random.choice([1, 5]), "dispatches": False}
        row |= ANY_WORK.worker_columns(context)
        self._elsewhere.append(self.store.run(context.heartbeat.register, self.store, row))

    def _leave_pending(self) -> None:
        """Runs that were admitted for a worker elsewhere, and that nobody has claimed."""
        ids = self._ids("SELECT id FROM trax.metadata WHERE state = 'in_progress' AND submitter = 'local'")
        self._execute(UNCLAIM, self._some(ids)[:1])

    def _requeue_letter(self) -> None:
        """A dead letter is queued again: its run must be noted on it."""
        letter = self.store.run(_add_letter, self.now)
        self.store.run(work_queue.add, self._entries(1, dead_letter_id=letter), now=self.now)

    def _clear(self) -> None:
        """Take back what keeps visits from being quick for long."""
        for statement in CLEAR:
            self._execute(statement, [])
        for name in self.random.sample(GROUPS, 2):
            self.store.run(groups.change, name, {"enabled": True, "max_active_jobs": None}, now=self.now)
        if self._elsewhere:
            self._switch_elsewhere()

    def _execute(self, statement: str, ids: list[int]) -> None:
        self.store.run(lambda connection: connection.execute(text(statement), {"ids": ids}))

    def _ids(self, query: str, **given: Any) -> list[int]:
        return self.store.read(lambda connection: sorted(connection.execute(text(query), given).scalars()))

    def _some(self, ids: list[int]) -> list[int]:
        return self.random.sample(ids, self.random.randint(0, len(ids)))


def _add_letter(connection: Connection, now: datetime) -> int:
    return connection.execute(text(LETTER), {"now": now}).scalar_one()


def _is_waiting(connection: Connection) -> bool:
    return connection.execute(WAITING).scalar_one() > 0
