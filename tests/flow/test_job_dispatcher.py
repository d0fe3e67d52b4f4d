from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import listing
from tests.support.databases import IN_MEMORY_TOO

from trax.engine.job_dispatcher import MAX_ENTRIES_PER_CYCLE, DispatchResult, run_dispatch_cycle
from trax.engine.routing import Routing
from trax.records import Origin, QueueStatus, State
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.settings import Settings
from trax.store import Store, groups
from trax.store.queue import work_queue
from trax.store.runs import metadata
from trax.store.runs.claim import ClaimRequest
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

pytestmark = IN_MEMORY_TOO


class Gate:
    """A queue with groups, and the gate in front of it."""

    def __init__(self, store: Store, now: datetime) -> None:
        self.store = store
        self.now = now
        self.names: dict[int, str] = {}

    def group(self, name: str, *, queued: int = 0, active: int = 0, **settings: Any) -> None:
        self.store.run(groups.get_or_create, [name], now=self.now)
        self.store.run(groups.change, name, {"enabled": True, **settings}, now=self.now)
        self.queue(name, queued)
        self.active(name, active)

    def queue(self, group: str | None, count: int, **options: Any) -> None:
        found = self.store.read(groups.get, group) if group else None
        letter = group or "manual"
        entries = [
            NewEntry(
                external_id=f"{letter}{len(self.names) + number}-{new_external_id()}",
                train="work",
                origin=Origin.QUEUE,
                input="{}",
                group_id=found.id if found else None,
                group_priority=found.priority if found else 0,
                **options,
            )
            for number in range(count)
        ]
        ids = self.store.run(work_queue.add, entries, now=self.now)
        before = sum(name.startswith(letter) for name in self.names.values())
        self.names |= {one: f"{letter}{before + place}" for place, one in enumerate(ids, start=1)}

    def active(self, group: str | None, count: int, state: State = State.IN_PROGRESS, **columns: Any) -> None:
        self.store.run(_insert_runs, group, count, state, columns, self.now)

    def cycle(self, **settings: Any) -> list[str]:
        """Which entries one cycle lets through, by name, in order."""
        return [self.names[one] for one in self.dispatched(**settings).entry_ids]

    def dispatched(self, *, slots: int | None = None, **settings: Any) -> DispatchResult:
        """One cycle, to which a worker with so many free slots may come along."""
        taker = None if slots is None else ClaimRequest(1, "box", slots, frozenset({"work"}))
        return self.store.run(
            run_dispatch_cycle, self.store, Settings.load(settings, {}), Routing(), claim_request=taker
        )

    @property
    def waiting(self) -> set[str]:
        return {self.names[entry.id] for entry in self.store.read(listing.entries, status=QueueStatus.QUEUED)}


def _insert_runs(
    connection: Connection, group: str | None, count: int, state: State, columns: Any, now: datetime
) -> None:
    found = groups.get(connection, group) if group else None
    ended = now if state not in (State.PENDING, State.IN_PROGRESS) else None
    row = {"external_id": "x", "train": "t", "state": state, "created_at": now, "started_at": now}
    row |= {"ended_at": ended, "group_id": found.id if found else None, **columns}
    if count:
        connection.execute(tables(connection).metadata.insert(), [row] * count)


@pytest.fixture
def gate(store: Store, now: datetime) -> Gate:
    return Gate(store, now)


def test_the_worked_example(gate: Gate) -> None:
    gate.group("A", max_active_jobs=3, priority=20, queued=4)
    gate.group("B", max_active_jobs=3, priority=10, queued=4)

    assert gate.cycle(max_active_jobs=5) == ["A1", "A2", "A3", "B1", "B2"]
    assert gate.waiting == {"A4", "B3", "B4"}
    assert gate.cycle(max_active_jobs=5) == []
    assert gate.cycle(max_active_jobs=8) == ["B3"]


@pytest.mark.parametrize(("slots", "taken"), [(10, 5), (5, 5), (4, 4), (1, 1)])
def test_the_worked_example_with_a_worker_at_hand(gate: Gate, slots: int, taken: int) -> None:
    gate.group("A", max_active_jobs=3, priority=20, queued=4)
    gate.group("B", max_active_jobs=3, priority=10, queued=4)

    dispatched = gate.dispatched(max_active_jobs=5, slots=slots)

    begun = [gate.store.read(metadata.get, run.metadata_id) for run in dispatched.claimed]
    assert [gate.names[one] for one in dispatched.entry_ids] == ["A1", "A2", "A3", "B1", "B2"][:taken]
    assert [run and (run.state, run.worker) for run in begun] == [(State.IN_PROGRESS, 1)] * taken


def test_pending_and_in_progress_runs_count_against_the_limit(gate: Gate) -> None:
    gate.active(None, 2, State.PENDING)
    gate.active(None, 2, State.IN_PROGRESS)
    gate.active(None, 5, State.COMPLETED)
    gate.queue(None, 3)

    assert gate.cycle(max_active_jobs=5) == ["manual1"]


def test_a_cycle_admits_no_more_than_the_free_capacity(gate: Gate) -> None:
    gate.active(None, 95)
    gate.queue(None, 50)

    assert len(gate.cycle(max_active_jobs=100)) == 5


def test_exempt_runs_do_not_count_against_the_limit(gate: Gate) -> None:
    gate.active(None, 9, exempt=True)
    gate.queue(None, 3)

    assert len(gate.cycle(max_active_jobs=2)) == 2


@pytest.mark.parametrize(("limit", "expected"), [(None, 7), (0, 0)])
def test_no_limit_admits_all_and_a_limit_of_zero_none(gate: Gate, limit: int | None, expected: int) -> None:
    gate.queue(None, 7)

    assert len(gate.cycle(max_active_jobs=limit)) == expected


def test_a_full_group_does_not_hold_back_another(gate: Gate) -> None:
    gate.group("a", max_active_jobs=1, priority=20, active=1, queued=3)
    gate.group("b", priority=10, queued=1)

    assert gate.cycle() == ["b1"]


def test_groups_fill_up_to_their_limits_where_there_is_no_other(gate: Gate) -> None:
    gate.group("A", max_active_jobs=2, priority=24, queued=4)
    gate.group("B", max_active_jobs=3, priority=0, queued=5)

    assert gate.cycle(max_active_jobs=None) == ["A1", "A2", "B1", "B2", "B3"]


def test_a_group_with_a_limit_of_zero_waits_and_the_others_run(gate: Gate) -> None:
    gate.group("A", max_active_jobs=0, priority=20, queued=3)
    gate.group("B", priority=10, queued=2)

    assert gate.cycle(max_active_jobs=None) == ["B1", "B2"]


def test_entries_without_a_group_ignore_group_limits_and_count_against_the_total(gate: Gate) -> None:
    gate.group("a", max_active_jobs=1, priority=20, active=1, queued=3)
    gate.queue(None, 1)

    assert gate.cycle(max_active_jobs=2) == ["manual1"]
    assert gate.cycle(max_active_jobs=2) == []


def test_the_order_is_group_priority_then_priority_then_age_then_id(gate: Gate) -> None:
    gate.group("low", priority=0)
    gate.group("high", priority=5)
    gate.queue("low", 1, priority=31)
    gate.queue("high", 2, priority=0)
    gate.queue("high", 1, priority=9)
    gate.queue(None, 1, priority=3)

    assert gate.cycle(max_active_jobs=None) == ["high3", "high1", "high2", "low1", "manual1"]


def test_with_equal_priority_the_oldest_entry_is_dispatched_first(gate: Gate) -> None:
    noon = gate.now
    for minutes_ago in (1, 3, 2):
        gate.now = noon - timedelta(minutes=minutes_ago)
        gate.queue(None, 1)

    assert gate.cycle() == ["manual2", "manual3", "manual1"]


def test_a_flooded_full_group_does_not_hide_other_groups(gate: Gate) -> None:
    gate.group("flood", max_active_jobs=1, priority=31, active=1, queued=MAX_ENTRIES_PER_CYCLE + 50)
    gate.group("small", priority=0, queued=1)
    gate.queue(None, 1)

    assert gate.cycle(max_active_jobs=None) == ["small1", "manual1"]


def test_a_group_that_fills_up_during_a_cycle_does_not_hide_other_groups(gate: Gate) -> None:
    gate.group("flood", max_active_jobs=2, priority=31, queued=MAX_ENTRIES_PER_CYCLE + 50)
    gate.group("other", max_active_jobs=3, priority=20, queued=MAX_ENTRIES_PER_CYCLE + 50)
    gate.group("small", priority=0, queued=2)

    expected = ["flood1", "flood2", "other1", "other2", "other3", "small1", "small2"]
    assert gate.cycle(max_active_jobs=None) == expected


def test_a_group_gets_only_its_share_of_a_cycle(gate: Gate) -> None:
    gate.group("a", priority=20, queued=5)
    gate.group("b", priority=10, queued=5)
    gate.queue(None, 10)

    let_through = gate.cycle(max_active_jobs=None, max_queued_jobs_per_cycle=2)

    assert let_through == ["a1", "a2", "b1", "b2", *(f"manual{number}" for number in range(1, 11))]


@pytest.mark.parametrize("other", ["z", None])
def test_a_lone_group_has_no_share_until_others_wait(gate: Gate, other: str | None) -> None:
    gate.group("m", queued=2 * MAX_ENTRIES_PER_CYCLE)

    alone = gate.cycle(max_active_jobs=None)
    gate.queue(other, 1) if other is None else gate.group(other, queued=1)
    shared = gate.cycle(max_active_jobs=None, max_queued_jobs_per_cycle=5)

    assert len(alone) == MAX_ENTRIES_PER_CYCLE
    assert (len(shared), shared[-1][:-1]) == (6, other or "manual")


def test_a_delayed_entry_is_admitted_when_it_is_due(gate: Gate) -> None:
    gate.queue(None, 1, scheduled_at=gate.now + timedelta(minutes=5))

    assert gate.cycle() == []
    gate.store._clock = lambda: gate.now + timedelta(minutes=5)  # pyright: ignore[reportPrivateUsage]
    assert gate.cycle() == ["manual1"]


def test_a_disabled_group_waits_until_it_is_enabled(gate: Gate) -> None:
    gate.group("a", enabled=False, queued=2)

    assert gate.cycle() == []
    gate.store.run(groups.change, "a", {"enabled": True}, now=gate.now)
    assert gate.cycle() == ["a1", "a2"]


def test_an_admitted_entry_becomes_a_pending_run(gate: Gate) -> None:
    gate.group("a", queued=1)
    (entry,) = gate.store.read(listing.entries)

    (metadata_id,) = gate.dispatched().metadata_ids

    run = gate.store.read(metadata.get, metadata_id)
    marked = gate.store.read(work_queue.get, entry.id)
    assert run
    assert marked
    assert (run.state, run.train, run.group, run.submitter) == (State.PENDING, "work", "a", "local")
    assert (run.external_id, run.input, run.created_at) == (entry.external_id, {}, gate.now)
    assert (marked.status, marked.metadata_id) == (QueueStatus.DISPATCHED, metadata_id)
    assert marked.dispatched_at == gate.now


def test_a_long_queue_is_dispatched_cycle_by_cycle(gate: Gate) -> None:
    gate.queue(None, MAX_ENTRIES_PER_CYCLE + 3)

    first, second = (gate.dispatched(max_active_jobs=None) for _ in range(2))

    assert (len(first.metadata_ids), first.run_again) == (MAX_ENTRIES_PER_CYCLE, True)
    assert (len(second.metadata_ids), second.run_again) == (3, False)
