"""A dispatcher that remembers its last visit finds what it would find without that, and passes less."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, text
from tests.support.gate_driver import GateDriver
from tests.support.results import run_result

from trax.engine.job_dispatcher import DispatchResult, run_dispatch_cycle
from trax.engine.routing import FleetCache, Routing
from trax.records import Origin
from trax.records.metadata import NewRun
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.settings import Settings
from trax.store import Store, admission, gate, gate_memory, groups
from trax.store.admission import Admission
from trax.store.dialect import take_gate_lock, use_one_snapshot
from trax.store.gate_memory import GateMemory
from trax.store.queue import parking, requeue, work_queue
from trax.store.runs import metadata
from trax.store.runs.claim import ClaimRequest
from trax.store.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from sqlalchemy import Connection

WORKER = 7
LONG_AGO = timedelta(hours=1)
END_DELAY = text("UPDATE trax.work_queue SET scheduled_at = now() - interval '1 s' WHERE id = :id")


PROMOTE = text(
    "UPDATE trax.work_queue SET ready = true, written_in = pg_current_xact_id() "
    "WHERE status = 'queued' AND NOT ready AND parked IS NULL AND scheduled_at <= now()"
)

PUT_BACK = (
    "UPDATE trax.work_queue SET status = 'queued', dispatched_at = NULL, metadata_id = NULL WHERE id = :id"
)


class Dispatcher(GateDriver):
    """A dispatcher with a memory, which a worker with some slots visits."""

    def __init__(self, url: str, memory: GateMemory | None = None) -> None:
        store = Store(url)
        store.open()
        super().__init__(store, store.read(store.now))
        self.seconds = 0.0
        """The clock by which the bounds of the memory expire; it stands still."""
        self.memory = memory or GateMemory(lambda: self.seconds)
        self.url = url
        self.callers = create_engine(parse_url(url))

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """A transaction of a caller, committed at the end of the block."""
        with self.callers.begin() as connection:
            yield connection

    def close(self) -> None:
        self.callers.dispose()
        self.store.close()

    def enqueue(self, count: int = 1, *, ago: timedelta = timedelta(), **options: Any) -> list[int]:
        return self.store.run(self.enqueue_in, count, ago=ago, **options)

    def enqueue_in(
        self, connection: Connection, count: int = 1, *, ago: timedelta = timedelta(), **options: Any
    ) -> list[int]:
        given: dict[str, Any] = {"train": "work", "origin": Origin.QUEUE, **options}
        entries = [NewEntry(external_id=new_external_id(), **given) for _ in range(count)]
        return work_queue.add(connection, entries, now=self.store.now(connection) - ago)

    def admit(self, slots: int, *, limit: int | None = 10_000) -> list[int]:
        """The entries that one visit admits; if it is asked to come again and got nothing, the next one."""
        visit = self.store.run(self.visit_in, slots, limit)
        if visit.run_again and not visit.entry_ids:
            visit = self.store.run(self.visit_in, slots, limit)
        return visit.entry_ids

    def visit_in(self, connection: Connection, slots: int, limit: int | None) -> DispatchResult:
        taker = ClaimRequest(WORKER, "box", slots, frozenset({"work"}))
        settings = Settings(max_active_jobs=limit)
        return run_dispatch_cycle(
            connection, self.store, settings, Routing(), claim_request=taker, memory=self.memory
        )

    def end(self, run_ids: list[int]) -> None:
        results = [run_result(run_id, worker_id=WORKER) for run_id in run_ids]
        self.store.run(metadata.finish_and_commit, results, now=None)

    def active(self) -> list[int]:
        query = text("SELECT id FROM trax.metadata WHERE ended_at IS NULL ORDER BY id")
        return self.store.read(lambda connection: list(connection.execute(query).scalars()))

    def run_of(self, entry_id: int) -> int:
        entry = self.store.read(work_queue.get, entry_id)
        assert entry
        assert entry.metadata_id
        return entry.metadata_id


@pytest.fixture
def driver(postgres_url: str) -> Generator[Dispatcher]:
    made = Dispatcher(postgres_url)
    yield made
    made.close()


def write_as_a_replica(driver: Dispatcher, statement: str, **parameters: Any) -> None:
    """Write rows as replication does: without triggers."""
    with driver.transaction() as other:
        other.execute(text("SET LOCAL session_replication_role = replica"))
        other.execute(text(statement), parameters)


def remembered(driver: Dispatcher) -> list[int]:
    """A queue of ten entries whose first three have been dispatched, and what is left of it."""
    entries = driver.enqueue(10)
    assert driver.admit(2) == entries[:2]
    assert driver.admit(1) == entries[2:3]
    return entries


def test_a_visit_continues_where_the_last_one_has_left_off(driver: Dispatcher) -> None:
    entries = remembered(driver)

    assert driver.admit(4) == entries[3:7]
    assert driver.admit(4) == entries[7:]
    assert driver.admit(4) == []
    assert driver.admit(4) == []

    more = driver.enqueue(3)
    assert driver.admit(4) == more


@pytest.mark.parametrize("options", [{"ago": LONG_AGO}, {"priority": 5}, {"group_priority": 5}])
def test_an_entry_before_all_others_is_found(driver: Dispatcher, options: dict[str, Any]) -> None:
    remembered(driver)

    (first,) = driver.enqueue(**options)

    assert driver.admit(1) == [first]


def test_an_entry_of_the_first_transaction_after_a_visit_is_found(driver: Dispatcher) -> None:
    """A visit that writes nothing has no transaction id: the next one gets the first that it did not see."""
    remembered(driver)
    assert driver.admit(1, limit=3) == []

    (first,) = driver.enqueue(ago=LONG_AGO)

    assert driver.admit(1) == [first]


def test_an_entry_whose_transaction_was_open_at_the_last_visit_is_found(driver: Dispatcher) -> None:
    with driver.transaction() as other:
        (first,) = driver.enqueue_in(other)
        entries = remembered(driver)
        assert first < entries[0]

    assert driver.admit(2) == [first, entries[3]]


def test_an_entry_whose_transaction_lasted_several_visits_is_found(driver: Dispatcher) -> None:
    with driver.transaction() as other:
        (first,) = driver.enqueue_in(other)
        entries = remembered(driver)
        assert driver.admit(1) == [entries[3]]
        (second,) = driver.enqueue_in(other, ago=LONG_AGO)
        assert driver.admit(1) == [entries[4]]

    assert driver.admit(3) == [second, first, entries[5]]


def test_a_delayed_entry_that_becomes_due_is_found(driver: Dispatcher) -> None:
    soon = driver.now + timedelta(hours=1)
    (first,) = driver.enqueue(ago=LONG_AGO, scheduled_at=soon)
    entries = remembered(driver)

    driver.store.run(lambda connection: connection.execute(END_DELAY, {"id": first}))

    assert driver.admit(2) == [first, entries[3]]


def test_an_entry_that_its_run_puts_back_is_found(driver: Dispatcher) -> None:
    entries = remembered(driver)

    driver.store.run(requeue.put_back, {driver.run_of(entries[1]): None}, attempts=0)

    assert driver.admit(2) == [entries[1], entries[3]]


def test_an_entry_that_is_unparked_is_found(driver: Dispatcher) -> None:
    (first,) = driver.enqueue(ago=LONG_AGO)
    driver.store.run(parking.park, {first: "work"}, now=driver.now)
    entries = remembered(driver)

    assert driver.store.run(parking.unpark, ["work"], limit=10) == 1

    assert driver.admit(2) == [first, entries[3]]


def test_an_entry_that_a_visit_has_unparked_itself_is_found(driver: Dispatcher) -> None:
    """The visit has read the queue before; and its own transaction may be older than its snapshot."""
    (first,) = driver.enqueue(ago=LONG_AGO)
    driver.store.run(parking.park, {first: "work"}, now=driver.now)
    driver.someone_elsewhere(4, dispatches=True, trains='["work"]')
    entries = driver.enqueue(10)
    taker = ClaimRequest(WORKER, "box", 2, frozenset({"work"}))
    fleets = FleetCache()

    def visit(connection: Connection) -> DispatchResult:
        connection.execute(text("SELECT pg_current_xact_id()"))
        driver.enqueue()  # in a transaction that begins later and ends sooner
        return run_dispatch_cycle(
            connection,
            driver.store,
            Settings(max_active_jobs=100),
            Routing(),
            claim_request=taker,
            fleets=fleets,
            memory=driver.memory,
        )

    seen = driver.store.run(visit)

    assert (seen.entry_ids, seen.run_again) == (entries[:2], True)
    assert driver.admit(2) == [first, entries[2]]


def test_an_entry_whose_group_gets_another_priority_is_found_once(driver: Dispatcher) -> None:
    driver.group("some")
    group = driver.store.read(groups.get, "some")
    assert group
    entries = remembered(driver)
    mine = driver.enqueue(2, group_id=group.id)

    driver.group("some", priority=9)
    assert driver.admit(1) == mine[:1]
    driver.group("some", priority=0)

    assert driver.admit(20) == [*entries[3:], mine[1]]


def test_an_entry_that_was_refused_is_found_when_its_group_has_capacity(driver: Dispatcher) -> None:
    driver.group("tight", max_active_jobs=1)
    tight = driver.store.read(groups.get, "tight")
    assert tight
    (running, refused) = driver.enqueue(2, group_id=tight.id)
    entries = driver.enqueue(10)
    assert driver.admit(3) == [running, *entries[:2]]
    assert driver.admit(2) == entries[2:4]

    driver.end(driver.active()[:1])

    assert driver.admit(2) == [refused, entries[4]]


def test_a_refused_entry_that_moves_back_is_found_once(driver: Dispatcher) -> None:
    driver.group("tight", max_active_jobs=0, priority=9)
    tight = driver.store.read(groups.get, "tight")
    assert tight
    (refused,) = driver.enqueue(group_id=tight.id, group_priority=9)
    entries = driver.enqueue(5)
    assert driver.admit(2) == entries[:2]

    driver.group("tight", max_active_jobs=5, priority=0)

    assert driver.admit(9) == [refused, *entries[2:]]


def test_more_new_entries_than_a_visit_reads_at_once_are_found(driver: Dispatcher) -> None:
    entries = remembered(driver)

    driver.enqueue(gate_memory.MAX_NEW_ENTRIES + 1)
    (first,) = driver.enqueue(ago=LONG_AGO)

    assert driver.admit(2) == [first, entries[3]]


def test_an_urgent_entry_does_not_move_the_bound_back(driver: Dispatcher) -> None:
    entries = remembered(driver)
    before = driver.memory.take()
    driver.memory.remember(before)
    (urgent,) = driver.enqueue(priority=5)

    def visit(connection: Connection) -> gate_memory.GateBounds:
        seen = gate.read_gate(connection, limit=50, has_global_limit=True, now=None, memory=driver.memory)
        assert [entry.id for entry in seen.candidates] == [urgent, *entries[3:]]
        return gate.bounds_after(seen, {urgent}, has_made_ready=False)

    after = driver.store.run(visit)

    assert before.queue
    assert after.queue
    assert after.queue.last == before.queue.last
    assert after.queue.kept == ()


def test_entries_admitted_by_another_dispatcher_are_not_missed(driver: Dispatcher) -> None:
    entries = remembered(driver)
    other = Dispatcher(driver.url)

    assert other.admit(2) == entries[3:5]

    assert driver.admit(2) == entries[5:7]
    assert other.admit(2) == entries[7:9]
    other.close()


def test_a_visit_that_fails_leaves_no_bound(driver: Dispatcher) -> None:
    entries = remembered(driver)

    def fail(connection: Connection) -> None:
        gate.read_gate(connection, limit=5, has_global_limit=True, now=None, memory=driver.memory)
        raise RuntimeError("the server is gone")

    with pytest.raises(RuntimeError):
        driver.store.run(fail)

    assert driver.memory.take() == gate_memory.GateBounds()
    assert driver.admit(2) == entries[3:5]


@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "careful"])
def test_a_new_session_reads_from_the_start(driver: Dispatcher, *, is_quick: bool) -> None:
    """Whatever was lost with the old one: here the rows are put back behind the back of every session."""
    entries = remembered(driver)
    if not is_quick:
        driver.memory.forbid_quick()
    write_as_a_replica(driver, PUT_BACK, id=entries[0])
    assert driver.admit(1) == entries[3:4], "no bound is valid for what does not name its transaction"

    again = Dispatcher(driver.url, driver.memory)

    assert again.admit(2) == [entries[0], entries[4]]
    again.close()


def test_runs_that_began_outside_of_the_gate_are_counted_however_late_they_commit(
    driver: Dispatcher,
) -> None:
    with driver.transaction() as other:
        metadata.begin(other, NewRun(external_id="mine", train="work"), now=driver.now)
        entries = driver.enqueue(10)
        assert driver.admit(2, limit=4) == entries[:2]
        driver.end(driver.active())
        assert driver.admit(2, limit=4) == entries[2:4]

    assert driver.admit(9, limit=4) == entries[4:5]
    assert driver.admit(9, limit=4) == []


@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "careful"])
def test_runs_that_were_active_before_the_first_visit_are_counted_at_the_next(
    driver: Dispatcher, *, is_quick: bool
) -> None:
    entries = driver.enqueue(10)
    assert driver.admit(3, limit=5) == entries[:3]
    driver.memory = GateMemory()

    assert driver.admit(1, limit=5) == entries[3:4]
    if not is_quick:
        driver.memory.forbid_quick()
    assert driver.admit(9, limit=5) == entries[4:5]


def test_old_runs_are_counted_however_many_have_ended_since(driver: Dispatcher) -> None:
    old = gate_memory.MAX_OLD_RUNS + 20
    driver.enqueue(old)
    assert len(driver.admit(old)) == old
    stays = driver.active()
    for _ in range(4):
        driver.enqueue(700)
        assert len(driver.admit(700)) == 700
        driver.end([run_id for run_id in driver.active() if run_id not in stays])

    driver.enqueue(10)
    assert len(driver.admit(9, limit=old + 3)) == 3
    driver.end(stays[:1])
    assert len(driver.admit(9, limit=old + 3)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_visit_reads_the_same_with_and_without_a_memory(driver: Dispatcher, seed: int) -> None:
    """Whatever happens in between, in whichever order it is committed."""
    Storm(driver, Random(seed)).blow(60)  # noqa: S311


class Storm:
    """Random changes of the queue and of the runs, and a visit after each that reads in both ways."""

    def __init__(self, driver: Dispatcher, random: Random) -> None:
        self.driver, self.store, self.random = driver, driver.store, random
        self.open: list[Any] = []
        for name in ("one", "two"):
            driver.group(name)
        self.group_ids = [group.id for group in driver.store.read(groups.load_list)]
        self.changes: list[Callable[[Connection], object]] = [
            self.enqueue, self.enqueue, self.enqueue, self.delay, self.end_delay, self.put_back,
            self.park, self.unpark, self.reprioritise, self.withdraw, self.begin, self.end, self.end,
        ]  # fmt: skip

    def blow(self, steps: int) -> None:
        for _ in range(steps):
            change = self.random.choice(self.changes)
            if change == self.enqueue and self.random.random() < 0.3:
                connection = self.driver.callers.connect()
                transaction = connection.begin()
                change(connection)
                self.open.append((connection, transaction))
            else:
                self.store.run(change)
            if self.open and self.random.random() < 0.3:
                connection, transaction = self.open.pop(self.random.randrange(len(self.open)))
                transaction.rollback() if self.random.random() < 0.2 else transaction.commit()
                connection.close()
            self.store.run(self.random.choice([self.visit, self.visit_whole]))
        for connection, transaction in self.open:
            transaction.commit()
            connection.close()
        self.store.run(self.visit)

    def visit(self, connection: Connection) -> None:
        limit, memory = self.random.randrange(1, 12), self.driver.memory
        seen = gate.read_gate(connection, limit=limit, has_global_limit=True, now=None, memory=memory)
        assert seen.candidates == gate.load_first(connection, limit=limit)
        if seen.candidates:
            active = {group: count for group, count in (seen.active or {}).items() if count}
            assert active == gate.count_active_runs(connection)
        some = [entry for entry in seen.candidates if self.random.random() < 0.6]
        worker_id = WORKER if self.random.random() < 0.7 else None
        admissions = [Admission(entry.id, "local", worker_id=worker_id) for entry in some]
        admission.admit(connection, admissions, now=seen.now)
        bounds = gate.bounds_after(seen, {entry.id for entry in some}, has_made_ready=False)
        memory.remember(bounds)

    def visit_whole(self, connection: Connection) -> None:
        """A visit of a worker, which may take one round trip or two."""
        slots = self.random.randrange(1, 6)
        connection.execute(PROMOTE)
        first = [entry.id for entry in gate.load_first(connection, limit=slots)]
        visit = self.driver.visit_in(connection, slots, 10_000)
        assert visit.entry_ids == first[: len(visit.entry_ids)]
        assert visit.run_again or len(visit.claimed) == slots or len(visit.entry_ids) == len(first)

    def enqueue(self, connection: Connection) -> None:
        options: dict[str, Any] = {"priority": self.random.choice([0, 0, 0, 5])}
        if self.random.random() < 0.5:
            options |= {"group_id": self.random.choice(self.group_ids)}
        ago = timedelta(seconds=self.random.choice([0, 0, 0, 60]))
        self.driver.enqueue_in(connection, self.random.randrange(1, 4), ago=ago, **options)

    def delay(self, connection: Connection) -> None:
        later = self.store.now(connection) + timedelta(hours=1)
        self.driver.enqueue_in(connection, scheduled_at=later)

    def end_delay(self, connection: Connection) -> None:
        query = text("SELECT id FROM trax.work_queue WHERE status = 'queued' AND NOT ready ORDER BY id")
        for entry_id in self.some(list(connection.execute(query).scalars())):
            connection.execute(END_DELAY, {"id": entry_id})

    def put_back(self, connection: Connection) -> None:
        query = text("SELECT metadata_id FROM trax.work_queue WHERE status = 'dispatched' ORDER BY id")
        ids = list(connection.execute(query).scalars())
        requeue.put_back(connection, dict.fromkeys(self.some(ids)), attempts=0)

    def park(self, connection: Connection) -> None:
        query = text("SELECT id FROM trax.work_queue WHERE status = 'queued' AND ready ORDER BY id")
        ids = self.some(list(connection.execute(query).scalars()))
        parking.park(connection, dict.fromkeys(ids, "work"), now=self.driver.now)

    def unpark(self, connection: Connection) -> None:
        parking.unpark(connection, ["work"], limit=2)

    def reprioritise(self, connection: Connection) -> None:
        name, priority = self.random.choice(["one", "two"]), self.random.choice([0, 3, 9])
        groups.change(connection, name, {"priority": priority}, now=self.driver.now)

    def withdraw(self, connection: Connection) -> None:
        query = text("SELECT id FROM trax.work_queue WHERE status = 'queued' ORDER BY id")
        requeue.withdraw(connection, self.some(list(connection.execute(query).scalars())))

    def begin(self, connection: Connection) -> None:
        metadata.begin(
            connection, NewRun(external_id="x", train="work", worker_id=WORKER), now=self.driver.now
        )

    def end(self, connection: Connection) -> None:
        query = text("SELECT id FROM trax.metadata WHERE state = 'in_progress' ORDER BY id")
        ids = list(connection.execute(query).scalars())
        chosen = [run_id for run_id in ids if self.random.random() < 0.5]
        results = [run_result(run_id, worker_id=WORKER) for run_id in chosen]
        if results:
            metadata.finish(connection, results, now=self.store.now(connection))

    def some(self, ids: list[Any]) -> list[Any]:
        return self.random.sample(ids, min(len(ids), 2))


def test_a_visit_passes_nothing_that_has_left_while_a_snapshot_is_held(driver: Dispatcher) -> None:
    with driver.transaction() as holder:
        use_one_snapshot(holder)
        holder.execute(text("SELECT count(*) FROM trax.work_queue"))

        pass_through(driver, 3)
        early, early_without = (sum(pages_read(driver, one)) for one in (driver.memory, GateMemory()))
        pass_through(driver, 6)
        late, late_without = (sum(pages_read(driver, one)) for one in (driver.memory, GateMemory()))

    assert late_without > 2 * early_without, "the dead rows are all there"
    assert late < early + 20 < early_without


@pytest.mark.parametrize("is_analysed", [False, True])
def test_the_plan_that_is_kept_from_an_empty_database_reads_from_the_bound(
    driver: Dispatcher, *, is_analysed: bool
) -> None:
    last = gate_memory.Candidate(5, "work", None, None, created_at=driver.now)
    bound = gate_memory.QueueBound("10:20:12,13", last, (1, 2))
    queue, parameters = gate_memory.select_candidates("postgresql", bound, limit=100)
    [(count, more)] = gate_memory.count_statements(
        "postgresql", gate_memory.RunBound(5, (1, 2)), has_global_limit=True, with_oldest=False
    )

    def explain(connection: Connection) -> tuple[str, str]:
        take_gate_lock(connection)
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        if is_analysed:
            connection.exec_driver_sql("ANALYZE trax.work_queue, trax.metadata")
        return generic_plan(connection, str(queue), parameters), generic_plan(connection, str(count), more)

    queue_plan, count_plan = driver.store.run(explain)

    assert scans(queue_plan) == [
        *["work_queue_written_in_idx"] * 2,
        "work_queue_pkey",
        *["work_queue_ready_idx"] * 3,
    ]
    assert queue_plan.count("Index Cond") == 6
    assert [scan for scan in scans(count_plan) if scan.startswith("metadata")] == [
        "metadata_pkey",
        "metadata_pkey",
        "metadata_direct_idx",
    ]


def generic_plan(connection: Connection, statement: str, parameters: Mapping[str, Any]) -> str:
    """The plan of a prepared statement that is made without knowing its parameters."""
    for place, name in enumerate(parameters, start=1):
        statement = re.sub(rf":{name}\b", f"${place}", statement)
    types = {str: "text", bool: "boolean", int: "int2", datetime: "timestamptz"}
    declared = ", ".join(types[type(value)] for value in parameters.values())
    values = ", ".join(f"'{value}'" for value in parameters.values())
    connection.exec_driver_sql(f"PREPARE visit ({declared}) AS {statement}")
    plan = connection.exec_driver_sql(f"EXPLAIN (COSTS OFF) EXECUTE visit ({values})").scalars().all()
    connection.exec_driver_sql("DEALLOCATE visit")
    return "\n".join(plan)


def scans(plan: str) -> list[str]:
    return re.findall(r"Scan using (\w+)", plan)


def pass_through(driver: Dispatcher, batches: int) -> None:
    """Admit and end some batches; a few entries are left waiting."""
    for _ in range(batches):
        driver.enqueue(500)
        assert len(driver.admit(500)) == 500
        driver.end(driver.active())
    driver.enqueue(5)


def pages_read(driver: Dispatcher, memory: GateMemory) -> list[int]:
    """How many pages each of the reads of one visit touches, which admits nothing."""
    pages: list[int] = []

    def explain(connection: Connection, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        raw: Any = connection.connection.driver_connection
        cursor = raw.cursor()
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", given)
        with raw.pipeline():
            pass
        plan = cursor.fetchone()[0][0]["Plan"]
        pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def visit(connection: Connection) -> None:
        bounds = memory.take()
        memory.remember(bounds)
        event.listen(connection, "before_cursor_execute", explain)
        seen = gate.read_gate(connection, limit=5, has_global_limit=True, now=None, memory=memory)
        event.remove(connection, "before_cursor_execute", explain)
        assert len(seen.candidates) == 5
        memory.remember(bounds)

    driver.store.run(visit)
    return pages
