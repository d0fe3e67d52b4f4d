"""A worker that comes along to the gate: what it gets, what it leaves, and what it sees there."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import IN_MEMORY_TOO
from tests.support.gate_driver import GateDriver

from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.records import QueueStatus, State
from trax.settings import Settings
from trax.store.gate import load_first, load_group_heads
from trax.store.gate_memory import GateMemory
from trax.store.queue import work_queue
from trax.store.runs.claim import ClaimRequest
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Connection, Store

pytestmark = IN_MEMORY_TOO


@pytest.fixture
def gate(store: Store, now: datetime) -> GateDriver:
    return GateDriver(store, now)


def ids(held: Any) -> list[int]:
    return [run.metadata_id for run in held]


def test_a_run_admitted_for_a_worker_has_started_at_the_commit(gate: GateDriver) -> None:
    (entry,) = gate.queue(1)

    visited = gate.visit(slots=3)

    (run,) = gate.runs()
    marked = gate.store.read(work_queue.get, entry)
    assert marked
    assert (marked.status, marked.metadata_id) == (QueueStatus.DISPATCHED, run.id)
    assert (run.state, run.worker, run.host) == (State.IN_PROGRESS, 7, "box")
    assert (run.created_at, run.started_at) == (gate.now, gate.now)
    assert ids(visited.claimed) == visited.metadata_ids == [run.id]


def test_entries_without_a_free_slot_keep_their_place_in_the_queue(gate: GateDriver) -> None:
    entries = gate.queue(5)

    visited = gate.visit(slots=2)

    assert visited.entry_ids == entries[:2]
    assert len(visited.claimed) == 2
    assert visited.is_limited
    assert gate.queued() == entries[2:]
    assert gate.runs("pending") == []


def test_a_more_urgent_entry_overtakes_those_left_in_the_queue(gate: GateDriver) -> None:
    gate.queue(3)
    gate.visit(slots=1)
    (urgent,) = gate.queue(1, priority=9)

    assert gate.visit(slots=1).entry_ids == [urgent]


def test_a_higher_priority_goes_before_age_and_age_before_the_id(gate: GateDriver) -> None:
    (middle,) = gate.queue(1)
    gate.now -= timedelta(minutes=1)
    (oldest,) = gate.queue(1)
    gate.now += timedelta(minutes=2)
    (urgent,) = gate.queue(1, priority=5)

    assert [gate.visit(1).entry_ids for _ in range(3)] == [[urgent], [oldest], [middle]]


def test_a_dispatcher_with_a_memory_finds_an_entry_that_plain_sql_has_put_back(gate: GateDriver) -> None:
    """On SQLite it keeps none: each visit reads from the start."""
    memory = GateMemory(lambda: 0.0)
    entries = gate.queue(6)

    def visit() -> list[int]:
        taker = ClaimRequest(7, "box", 2, frozenset({"work"}))
        options: dict[str, Any] = {"claim_request": taker, "memory": memory}
        return gate.store.run(run_dispatch_cycle, gate.store, Settings(), Routing(), **options).entry_ids

    def put_back(connection: Connection) -> None:
        table = tables(connection).work_queue.fullname
        change = "status = 'queued', dispatched_at = NULL, metadata_id = NULL"
        connection.exec_driver_sql(f"UPDATE {table} SET {change} WHERE id = {entries[0]}")  # noqa: S608

    assert [visit(), visit()] == [entries[:2], entries[2:4]]
    gate.store.run(put_back)

    assert visit() == [entries[0], entries[4]]


def test_a_worker_without_a_free_slot_admits_no_entries(gate: GateDriver) -> None:
    entries = gate.queue(2)

    visited = gate.visit(slots=0)

    assert (visited.claimed, visited.is_limited) == ([], True)
    assert gate.queued() == entries


def test_workers_that_do_not_come_to_the_gate_are_provided_for_and_not_more(gate: GateDriver) -> None:
    gate.someone_elsewhere(3)
    entries = gate.queue(9)

    first = gate.visit(slots=2)
    second = gate.visit(slots=0)

    assert len(first.claimed) == 2
    assert len(gate.runs("pending")) == 3
    assert (second.metadata_ids, second.claimed) == ([], [])
    assert gate.queued() == entries[5:]


def test_workers_that_come_to_the_gate_themselves_need_nothing_pending(gate: GateDriver) -> None:
    gate.someone_elsewhere(3, dispatches=True)
    entries = gate.queue(9)

    gate.visit(slots=2)

    assert gate.runs("pending") == []
    assert gate.queued() == entries[2:]


def test_pending_runs_are_claimed_before_entries_are_admitted(gate: GateDriver) -> None:
    left = gate.pending(2)
    high = gate.queue(3, priority=9)

    visited = gate.visit(slots=3)

    assert ids(visited.claimed)[:2] == left
    assert visited.entry_ids == high[:1]
    assert gate.queued() == high[1:]
    assert {run.state for run in gate.runs()} == {State.IN_PROGRESS}


def test_a_worker_whose_slots_are_filled_with_pending_runs_admits_no_entries(gate: GateDriver) -> None:
    left = gate.pending(3)
    entries = gate.queue(1)

    visited = gate.visit(slots=2)

    assert (ids(visited.claimed), visited.is_limited) == (left[:2], True)
    assert gate.queued() == entries


def test_claimed_pending_runs_still_count_against_the_limit(gate: GateDriver) -> None:
    gate.pending(2)
    entries = gate.queue(3)

    visited = gate.visit(slots=9, limit=3)

    assert len(visited.claimed) == 3
    assert gate.queued() == entries[1:]


def test_cpu_trains_begin_only_where_a_process_is_free_for_them(gate: GateDriver) -> None:
    gate.queue(3, train="heavy", priority=9)
    gate.queue(1, train="light")

    visited = gate.visit(slots=4, trains=["heavy", "light"], cpu_slots=1, cpu_trains=frozenset({"heavy"}))

    assert [run.train for run in visited.claimed] == ["heavy", "light"]
    assert [run.train for run in gate.runs("pending")] == ["heavy", "heavy"]


def test_claimed_cpu_runs_use_up_the_cpu_slots(gate: GateDriver) -> None:
    left = gate.pending(1, train="heavy")
    gate.queue(1, train="heavy")

    visited = gate.visit(slots=4, trains=["heavy"], cpu_slots=1, cpu_trains=frozenset({"heavy"}))

    assert ids(visited.claimed) == left
    assert len(gate.runs("pending")) == 1


def test_a_train_the_worker_does_not_know_waits_for_one_that_does(gate: GateDriver) -> None:
    gate.queue(1, train="strange")

    visited = gate.visit(slots=4)

    (run,) = gate.runs()
    assert (run.state, run.worker, run.started_at, run.submitter) == (State.PENDING, None, None, "local")
    assert visited.claimed == []


def test_nothing_is_held_back_where_some_trains_go_elsewhere(gate: GateDriver) -> None:
    gate.queue(4)
    gate.queue(2, train="far")

    visited = gate.visit(slots=1, routing=Routing(submitters={"far": "cluster"}))

    assert gate.queued() == []
    assert len(visited.claimed) == 1
    assert [run.submitter for run in gate.runs("pending")] == ["local"] * 3 + ["cluster"] * 2


def test_a_run_for_a_submitter_is_never_started_by_a_worker(gate: GateDriver) -> None:
    gate.queue(1)

    visited = gate.visit(slots=4, routing=Routing(submitters={"work": "cluster"}))

    assert visited.claimed == []
    assert [run.state for run in gate.runs()] == [State.PENDING]


def test_a_disabled_dispatcher_admits_no_entries_and_claims_pending_runs(
    gate: GateDriver,
) -> None:
    left = gate.pending(1)
    entries = gate.queue(2)
    gate.edit("job_dispatcher_enabled", "false")

    visited = gate.visit(slots=4)

    assert (ids(visited.claimed), visited.metadata_ids) == (left, [])
    assert gate.queued() == entries


def test_a_limit_that_an_operator_has_just_set_counts_in_the_same_visit(gate: GateDriver) -> None:
    gate.pending(2, state="in_progress", started_at=gate.now, worker_id=8)
    entries = gate.queue(4)
    gate.edit("max_active_jobs", "3")

    visited = gate.visit(slots=9, limit=None)

    assert len(visited.claimed) == 1
    assert gate.queued() == entries[1:]


def test_a_limit_just_lifted_by_an_operator_does_not_apply(gate: GateDriver) -> None:
    gate.queue(4)
    gate.edit("max_active_jobs", "null")

    assert len(gate.visit(slots=9, limit=1).claimed) == 4


def test_entries_without_a_group_are_found_in_order_behind_a_flood(gate: GateDriver) -> None:
    gate.group("flood", max_active_jobs=0, priority=31)
    gate.queue(100, group="flood")
    low, high = gate.queue(1), gate.queue(2, priority=9)

    assert gate.visit(slots=2).entry_ids == high
    assert gate.visit(slots=2).entry_ids == low


@pytest.mark.parametrize("seed", range(6))
def test_heads_that_are_read_step_by_step_are_the_first_of_every_group(gate: GateDriver, seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - repeatable, not secret
    for _ in range(60):
        group_id = chance.choice([None, *range(1, 7), 1, 1, 1])
        gate.queue(chance.randint(1, 9), group_id=group_id, priority=chance.randint(0, 2))
    capacities = {group_id: chance.choice([0, 1, 3, 40]) for group_id in (1, 3, 5)}
    per_group, limit = chance.choice([2, 10, 100]), chance.choice([5, 60, 500])

    found = gate.store.run(load_group_heads, capacities=capacities, per_group=per_group, limit=limit)

    room = Counter[int | None]()
    expected: list[int] = []
    for entry in gate.store.read(load_first, limit=10_000):
        room[entry.group_id] += 1
        most = min(capacities.get(entry.group_id or 0, per_group), per_group)
        if entry.group_id is None or room[entry.group_id] <= most:
            expected.append(entry.id)
    assert [entry.id for entry in found] == expected[:limit]
