"""A visit to the gate in one statement admits what a visit in two steps would, or nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.store.test_gate_memory import WORKER, Dispatcher
from tests.support.open_transaction import WAITING
from tests.support.waiting import until

from trax.engine.job_dispatcher import DispatchResult, open_quick_dispatch, run_dispatch_cycle
from trax.engine.routing import Routing
from trax.records.metadata import NewRun
from trax.settings import Settings
from trax.store import groups, quick_gate
from trax.store.dialect import take_gate_lock
from trax.store.gate_memory import MAX_OPENINGS, GateMemory
from trax.store.pipeline import run_together
from trax.store.queue import requeue, work_queue
from trax.store.runs import metadata
from trax.store.runs.claim import ClaimRequest
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from trax.store import Connection
    from trax.store.quick_gate import QuickVisit

LIMIT = 100


@pytest.fixture
def driver(postgres_url: str) -> Generator[Dispatcher]:
    made = Dispatcher(postgres_url)
    yield made
    made.close()


@pytest.fixture
def quick_visits(monkeypatch: pytest.MonkeyPatch) -> list[QuickVisit]:
    """The quick visits that were made."""
    made: list[QuickVisit] = []
    usual = quick_gate.read_visit

    def visit(*arguments: Any, **options: Any) -> QuickVisit:
        made.append(usual(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(quick_gate, "read_visit", visit)
    return made


def after_a_visit(driver: Dispatcher, count: int = 10, *, limit: int = LIMIT) -> list[int]:
    """Entries that are left when the first visits have been made, so that the next one may be quick."""
    entries = driver.enqueue(count + 1)
    assert driver.admit(1, limit=limit) == entries[:1]
    return entries[1:]


def run_of(driver: Dispatcher, entry_id: int) -> Any:
    entry = driver.store.read(work_queue.get, entry_id)
    assert entry
    assert entry.metadata_id
    run = driver.store.read(metadata.get, entry.metadata_id)
    assert run
    return entry, run


def test_runs_of_a_quick_visit_are_like_all_others(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    first, *_ = driver.enqueue(1, input='{"a":1}', priority=3, attempt=2, timeout_seconds=5.0)
    assert driver.admit(1, limit=LIMIT) == [first]
    second, *_ = driver.enqueue(1, input='{"a":1}', priority=3, attempt=2, timeout_seconds=5.0)

    visit = driver.store.run(driver.visit_in, 5, LIMIT)

    assert [each.is_plain for each in quick_visits] == [True]
    assert visit.entry_ids == [second]
    (usual, usual_run), (entry, run) = (run_of(driver, each) for each in (first, second))
    assert (entry.status, entry.dispatched_at) == (usual.status, run.started_at)
    changing = {"id", "external_id", "created_at", "started_at"}
    assert {name: value for name, value in vars_of(run).items() if name not in changing} == {
        name: value for name, value in vars_of(usual_run).items() if name not in changing
    }
    (claimed,) = visit.claimed
    assert (claimed.metadata_id, claimed.external_id, claimed.input) == (run.id, run.external_id, '{"a":1}')
    assert (claimed.attempt, claimed.priority, claimed.timeout_seconds) == (2, 3, 5.0)


def vars_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def test_a_quick_visit_admits_in_order_as_many_as_there_are_slots(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    entries = after_a_visit(driver)
    (urgent,) = driver.enqueue(1, priority=5)
    (most_urgent,) = driver.enqueue(1, priority=9)

    visit = driver.store.run(driver.visit_in, 4, LIMIT)

    assert quick_visits[-1].is_plain
    assert visit.entry_ids == [most_urgent, urgent, *entries[:2]]
    assert [run.metadata_id for run in visit.claimed] == visit.metadata_ids == sorted(visit.metadata_ids)
    assert (visit.is_out_of_slots, visit.has_waiting_entries, visit.run_again) == (True, True, True)
    assert driver.admit(20, limit=LIMIT) == entries[2:]
    assert driver.admit(20, limit=LIMIT) == []


def test_the_global_limit_is_exact(driver: Dispatcher, quick_visits: list[QuickVisit]) -> None:
    entries = after_a_visit(driver)

    visit = visit_with(driver, slots=9, limit=4, first_limit=4)

    assert quick_visits[-1].is_plain
    assert (visit.entry_ids, visit.run_again) == (entries[1:4], False)
    assert len(driver.active()) == 4
    assert driver.store.run(driver.visit_in, 9, 4).entry_ids == []
    driver.end(driver.active()[:2])
    assert driver.admit(9, limit=4) == entries[4:6]


def visit_with(driver: Dispatcher, *, slots: int, limit: int, first_limit: int) -> DispatchResult:
    """A quick visit under this limit: the visit before it, in two steps, had the same."""
    driver.admit(0, limit=first_limit)
    driver.admit(1, limit=first_limit)
    driver.end(driver.active()[:1])
    return driver.store.run(driver.visit_in, slots, limit)


def test_where_nothing_is_limited_visits_are_quick_and_a_new_limit_still_holds(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    driver.group("etl")
    group = driver.store.read(groups.get, "etl")
    assert group
    entries = driver.enqueue(20, group_id=group.id)
    assert driver.admit(2, limit=None) == entries[:2]
    assert driver.admit(2, limit=None) == entries[2:4]
    assert [each.is_plain for each in quick_visits] == [True]

    driver.group("etl", max_active_jobs=6)

    assert driver.admit(9, limit=None) == entries[4:6]
    assert [each.is_plain for each in quick_visits] == [True, False]
    assert driver.admit(9, limit=None) == []


def test_a_new_limit_of_a_group_holds_although_its_runs_were_not_counted_before(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    driver.group("etl")
    group = driver.store.read(groups.get, "etl")
    assert group
    driver.enqueue(20, group_id=group.id)
    assert len(driver.admit(4, limit=None)) == 4

    driver.group("etl", max_active_jobs=5)

    visit = driver.store.run(driver.visit_in, 2, None)
    assert [(each.is_plain, each.has_same_terms) for each in quick_visits] == [(False, False)]
    assert (visit.entry_ids, visit.run_again) == ([], True)
    assert len(driver.admit(2, limit=None)) == 1


@pytest.mark.parametrize("change", ["max_active_jobs", "enabled"])
def test_a_full_group_leaves_the_decision_to_the_next_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit], change: str
) -> None:
    driver.group("tight")
    group = driver.store.read(groups.get, "tight")
    assert group
    after_a_visit(driver, 0)
    tight = driver.enqueue(3, group_id=group.id)
    others = driver.enqueue(2)
    driver.group("tight", **{change: {"max_active_jobs": 2, "enabled": False}[change]})

    visit = driver.store.run(driver.visit_in, 9, LIMIT)
    assert (quick_visits[-1].is_plain, visit.entry_ids, visit.run_again) == (False, [], True)

    admitted = tight[:2] if change == "max_active_jobs" else []
    assert driver.store.run(driver.visit_in, 9, LIMIT).entry_ids == [*admitted, *others]


NEEDS_DECISION = {
    "a setting": "INSERT INTO trax.setting VALUES ('max_active_jobs', '1', now())",
    "a train of others": "UPDATE trax.work_queue SET train = 'unknown' WHERE id = 5",
    "a due entry": "UPDATE trax.work_queue SET ready = false, scheduled_at = created_at WHERE id = 3",
    "a parked entry": "UPDATE trax.work_queue SET ready = false, parked = '', parked_at = now() WHERE id = 3",
    "a dead letter": "UPDATE trax.work_queue SET dead_letter_id = 7 WHERE id = 3",
    "a pending run": "UPDATE trax.metadata SET state = 'pending', worker_id = NULL, started_at = NULL",
}


@pytest.mark.parametrize("statement", NEEDS_DECISION.values(), ids=NEEDS_DECISION)
def test_an_entry_that_needs_a_decision_is_left_to_the_next_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit], statement: str
) -> None:
    after_a_visit(driver)
    with driver.transaction() as other:
        other.execute(text(statement))

    visit = driver.store.run(driver.visit_in, 20, LIMIT)

    assert [(each.is_plain, each.claimed) for each in quick_visits] == [(False, [])]
    assert (visit.metadata_ids, visit.run_again) == ([], True)
    assert driver.memory.quick_terms is None


def test_a_changed_limit_is_not_known_to_a_quick_visit_and_still_holds(driver: Dispatcher) -> None:
    """The rows of settings are compared in the same snapshot."""
    after_a_visit(driver)
    driver.edit("max_active_jobs", "3")

    def visit(connection: Any) -> DispatchResult:
        def accept(rows: dict[str, str]) -> Settings:
            return Settings(max_active_jobs=int(rows.get("max_active_jobs", LIMIT)))

        taker = ClaimRequest(WORKER, "box", 20, frozenset({"work"}))
        return run_dispatch_cycle(
            connection,
            driver.store,
            Settings(max_active_jobs=LIMIT),
            Routing(),
            settings_from_rows=accept,
            claim_request=taker,
            memory=driver.memory,
        )

    while driver.store.run(visit).run_again:
        assert len(driver.active()) <= 3
    assert len(driver.active()) == 3


def test_after_a_failed_quick_visit_the_next_ones_decide(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    after_a_visit(driver)
    driver.enqueue(1, train="unknown", priority=9)
    for _ in range(5):
        driver.admit(1, limit=LIMIT)

    assert len(quick_visits) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO trax.setting VALUES ('log_level', '\"info\"', now())",
        """INSERT INTO trax.worker (host, host_environment, host_instance_id, pid, concurrency, dispatches,
                                    trains, started_at, heartbeat_at)
           VALUES ('box', 'test', '1', 1, 1, true, '[]', now(), now())""",
    ],
)
def test_when_a_server_joins_or_a_setting_changes_one_visit_decides_and_the_next_is_quick(
    driver: Dispatcher, quick_visits: list[QuickVisit], statement: str
) -> None:
    entries = after_a_visit(driver)
    with driver.transaction() as other:
        other.execute(text(statement))

    admitted = [driver.store.run(driver.visit_in, 2, LIMIT).entry_ids for _ in range(4)]

    assert admitted == [[], entries[:2], entries[2:4], entries[4:6]]
    assert [visit.is_plain for visit in quick_visits] == [False, True, True]


@pytest.mark.parametrize("seed", range(5))
def test_quick_visits_keep_the_order_and_the_limit(
    driver: Dispatcher, quick_visits: list[QuickVisit], seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - a test that can be repeated
    queued, done = dict[int, tuple[int, int]](), list[int]()
    for _ in range(40):
        priority = random.choice([0, 0, 0, 5])
        entries = driver.enqueue(random.randint(0, 4), priority=priority)
        queued |= {entry: (-priority, entry) for entry in entries}
        active = driver.active()
        driver.end(random.sample(active, random.randint(0, len(active))))
        slots = random.randint(1, 6)
        free = min(slots, 8 - len(driver.active()))

        admitted = driver.admit(slots, limit=8)

        assert admitted == sorted(queued, key=queued.__getitem__)[: max(0, free)]
        done += admitted
        for entry in admitted:
            del queued[entry]

    assert sum(visit.is_plain for visit in quick_visits) > 20
    assert len(set(done)) == len(done)


def test_no_visit_is_quick_under_another_limit_than_that_of_its_terms(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    entries = after_a_visit(driver, limit=LIMIT)

    visit = driver.store.run(driver.visit_in, 9, 3)

    assert (visit.entry_ids, quick_visits) == (entries[:2], [])


class Special:
    """Visits of a worker that has trains of other kinds as well."""

    def __init__(self, driver: Dispatcher, settings: Settings | None = None, **request: Any) -> None:
        self._driver = driver
        self._settings = settings or Settings(max_active_jobs=LIMIT)
        self._request = ClaimRequest(WORKER, "box", 5, frozenset({"work", "special"}), **request)
        self._routing = Routing(exempt=frozenset() if request else frozenset({"special"}))

    def visit(self) -> DispatchResult:
        return self._driver.store.run(
            run_dispatch_cycle,
            self._driver.store,
            self._settings,
            self._routing,
            claim_request=self._request,
            memory=self._driver.memory,
        )

    def visit_until_quick(self) -> None:
        self._driver.enqueue(1)
        self.visit()
        assert self._driver.memory.quick_terms


def test_a_train_without_limits_is_left_to_the_next_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    worker = Special(driver)
    worker.visit_until_quick()
    (exempt,) = driver.enqueue(1, train="special")

    assert (worker.visit().run_again, [each.is_plain for each in quick_visits]) == (True, [False])
    assert worker.visit().entry_ids == [exempt]
    query = text("SELECT exempt FROM trax.metadata ORDER BY id")
    assert driver.store.read(lambda each: list(each.execute(query).scalars())) == [False, True]


def test_a_train_with_processes_of_its_own_is_left_to_the_next_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    worker = Special(driver, cpu_trains=frozenset({"special"}), cpu_slots=1)
    worker.visit_until_quick()
    driver.enqueue(3, train="special")

    assert (worker.visit().run_again, [each.is_plain for each in quick_visits]) == (True, [False])
    assert len(worker.visit().claimed) == 1


def sharing_worker(driver: Dispatcher) -> tuple[Special, int]:
    """A worker under a share of two entries of a group, ready for a quick visit; and the id of a group."""
    driver.group("etl")
    group = driver.store.read(groups.get, "etl")
    assert group
    worker = Special(driver, Settings(max_active_jobs=LIMIT, max_queued_jobs_per_cycle=2))
    worker.visit_until_quick()
    return worker, group.id


def test_more_entries_of_a_group_than_its_share_are_left_to_the_next_visit_if_others_wait(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    worker, group_id = sharing_worker(driver)
    entries = driver.enqueue(8, group_id=group_id)
    others = driver.enqueue(1)

    assert (worker.visit().run_again, [each.is_plain for each in quick_visits]) == (True, [False])
    assert worker.visit().entry_ids == [*entries[:4], *others]


def test_a_group_that_waits_alone_has_no_share(driver: Dispatcher, quick_visits: list[QuickVisit]) -> None:
    worker, group_id = sharing_worker(driver)
    entries = driver.enqueue(8, group_id=group_id)

    assert worker.visit().entry_ids == entries[:5]
    assert [each.is_plain for each in quick_visits] == [True]


def test_a_queue_that_fits_into_the_free_slots_is_admitted_without_shares(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    worker, group_id = sharing_worker(driver)
    entries = driver.enqueue(4, group_id=group_id)
    others = driver.enqueue(1)

    assert worker.visit().entry_ids == [*entries, *others]
    assert [each.is_plain for each in quick_visits] == [True]


def test_a_worker_that_accepts_some_groups_makes_no_quick_visit(driver: Dispatcher) -> None:
    driver.group("mine")
    worker = Special(driver, groups=frozenset({"mine"}))
    driver.enqueue(3)

    worker.visit()

    assert driver.memory.quick_terms is None


def test_a_dispatcher_that_is_switched_off_makes_no_quick_visit(driver: Dispatcher) -> None:
    worker = Special(driver, Settings(max_active_jobs=LIMIT, job_dispatcher_enabled=False))
    driver.enqueue(3)

    assert worker.visit().entry_ids == []
    assert worker.visit().entry_ids == []
    assert driver.memory.quick_terms is None


def open_gate(driver: Dispatcher, *, limit: int | None = LIMIT) -> None:
    """What a dispatcher does before its first visit."""
    statements = quick_gate.bind_opening(has_global_limit=limit is not None)
    *_, rows = driver.store.run(run_together, *statements)
    opening = quick_gate.read_opening(rows, driver.memory)
    taker = ClaimRequest(WORKER, "box", 1, frozenset({"work"}))
    open_quick_dispatch(driver.memory, opening, taker, Settings(max_active_jobs=limit), Routing())


@pytest.mark.parametrize("limit", [5, None])
def test_after_the_opening_the_first_visit_is_a_quick_one_and_knows_what_is_active(
    driver: Dispatcher, quick_visits: list[QuickVisit], limit: int | None
) -> None:
    entries = driver.enqueue(10)
    driver.admit(3, limit=limit)
    (urgent,) = driver.enqueue(1, priority=9)
    driver.memory = GateMemory()  # as in a process that has just started

    open_gate(driver, limit=limit)
    admitted = driver.store.run(driver.visit_in, 4, limit).entry_ids

    assert [visit.is_plain for visit in quick_visits] == [True]
    assert admitted == [urgent, *entries[3:6]][: 4 if limit is None else 2]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO trax.setting VALUES ('log_level', '\"info\"', now())",
        """INSERT INTO trax.worker (host, host_environment, host_instance_id, pid, concurrency, dispatches,
                                    trains, started_at, heartbeat_at)
           VALUES ('box', 'test', '1', 1, 1, false, '[]', now(), now())""",
    ],
)
def test_with_edited_settings_or_workers_elsewhere_the_first_visit_decides(
    driver: Dispatcher, quick_visits: list[QuickVisit], statement: str
) -> None:
    entries = driver.enqueue(2)
    with driver.transaction() as other:
        other.execute(text(statement))

    open_gate(driver)

    assert driver.store.run(driver.visit_in, 2, LIMIT).entry_ids == entries
    assert quick_visits == []


def test_an_occupied_slot_of_another_worker_is_known_to_the_next_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    """Its slot counts as taken while a run is pending, and our worker claims that run."""
    driver.someone_elsewhere(1)
    driver.pending(1, entry_id=None)
    entries = driver.enqueue(2)
    assert driver.store.run(driver.visit_in, 1, LIMIT).entry_ids == []

    visit = driver.store.run(driver.visit_in, 1, LIMIT)

    assert visit.entry_ids == entries
    assert quick_visits == []


JOIN = """
    INSERT INTO trax.worker (host, host_environment, host_instance_id, pid, concurrency, dispatches, trains,
                             started_at, heartbeat_at)
    VALUES ('box', 'test', '2', 2, 10, true, '[]', now(), now())
"""


def test_when_a_server_joins_an_opening_is_enough_for_the_next_quick_visit(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    entries = driver.enqueue(9)
    open_gate(driver)
    assert driver.store.run(driver.visit_in, 3, LIMIT).entry_ids == entries[:3]
    assert not driver.memory.needs_opening

    with driver.transaction() as other:
        other.execute(text(JOIN))
    refused = driver.store.run(driver.visit_in, 3, LIMIT).entry_ids
    assert driver.memory.needs_opening
    open_gate(driver)
    admitted = driver.store.run(driver.visit_in, 3, LIMIT).entry_ids

    assert refused == []
    assert admitted == entries[3:6]
    assert [visit.has_same_terms for visit in quick_visits] == [True, False, True]
    assert not driver.memory.needs_opening


def test_an_opening_in_a_new_session_forgets_what_another_session_has_read(driver: Dispatcher) -> None:
    """Ids and transaction ids of a session that a crash has ended may have been given out again."""
    entries = driver.enqueue(5)
    open_gate(driver)
    driver.store.run(driver.visit_in, 2, LIMIT)
    last = driver.memory.take()
    driver.memory.remember(last)

    driver.memory.sessions.clear()
    open_gate(driver)

    assert driver.memory.take() != last
    open_gate(driver)
    assert driver.store.run(driver.visit_in, 9, LIMIT).entry_ids == entries[2:]


def test_where_every_session_is_new_full_visits_admit(
    driver: Dispatcher, quick_visits: list[QuickVisit]
) -> None:
    entries = driver.enqueue(20)
    admitted: list[int] = []
    openings = 0

    for _ in range(40):
        if driver.memory.needs_opening:
            open_gate(driver)
            openings += 1
        driver.memory.sessions.clear()  # as a pooler that resets each session
        admitted += driver.store.run(driver.visit_in, 1, LIMIT).entry_ids

    assert admitted == entries[: len(admitted)]
    assert len(admitted) >= 18
    assert openings <= MAX_OPENINGS
    assert not any(visit.has_same_terms for visit in quick_visits)


def test_the_opening_finds_a_run_that_another_server_is_admitting(driver: Dispatcher) -> None:
    """It waits for the gate: another run with a higher id may be committed sooner."""
    entries = driver.enqueue(4)
    with driver.transaction() as other:
        take_gate_lock(other)
        metadata.begin(other, NewRun(external_id="admitted", train="work"), now=driver.now)
        other.execute(text("UPDATE trax.metadata SET submitter = 'local'"))
        driver.store.run(metadata.begin, NewRun(external_id="direct", train="work"), now=driver.now)
        opening = Thread(target=open_gate, args=(driver,), kwargs={"limit": 3})
        opening.start()
        until(lambda: not opening.is_alive() or driver.store.read(waiting) == 1)
    opening.join()

    assert driver.store.run(driver.visit_in, 4, 3).entry_ids == entries[:1]


def visit_beside(
    driver: Dispatcher, work: Callable[[Connection], object], *, slots: int, limit: int
) -> DispatchResult:
    """The result of a visit that begins after this work of another transaction, and before its commit."""
    with ThreadPoolExecutor(1) as threads:
        with driver.transaction() as other:
            work(other)
            visit = threads.submit(driver.store.run, driver.visit_in, slots, limit)
            until(lambda: visit.done() or driver.store.read(waiting) == 1)
        return visit.result(60)


def admit_elsewhere(connection: Connection) -> None:
    """What another server does at the gate."""
    take_gate_lock(connection)
    row = {"external_id": "x", "train": "work", "state": "in_progress", "submitter": "local", "worker_id": 8}
    now = text("clock_timestamp()")
    connection.execute(tables(connection).metadata.insert().values(**row, created_at=now, started_at=now))


@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "careful"])
def test_a_visit_waits_for_the_gate_and_counts_what_another_server_has_admitted(
    driver: Dispatcher, quick_visits: list[QuickVisit], *, is_quick: bool
) -> None:
    entries = after_a_visit(driver, limit=3)
    if not is_quick:
        driver.memory.forbid_quick()

    visit = visit_beside(driver, admit_elsewhere, slots=9, limit=3)

    assert visit.entry_ids == entries[:1], "of three, one was active before, and one was admitted meanwhile"
    assert [each.is_plain for each in quick_visits] == [True] * is_quick


@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "careful"])
def test_a_visit_does_not_dispatch_an_entry_that_is_withdrawn_meanwhile(
    driver: Dispatcher, quick_visits: list[QuickVisit], *, is_quick: bool
) -> None:
    entries = after_a_visit(driver)
    if not is_quick:
        driver.memory.forbid_quick()

    visit = visit_beside(driver, lambda other: requeue.withdraw(other, entries[:1]), slots=2, limit=LIMIT)

    assert [run.train for run in visit.claimed] == ["work"]
    withdrawn = driver.store.read(work_queue.get, entries[0])
    assert withdrawn
    assert (withdrawn.status, withdrawn.metadata_id) == ("cancelled", None)
    assert len(driver.active()) == 2
    assert [each.is_plain for each in quick_visits] == [True] * is_quick


def waiting(connection: Connection) -> int:
    return connection.execute(WAITING).scalar_one()
