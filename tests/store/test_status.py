"""How the whole stands, in one look, on every database."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.support.databases import IN_MEMORY_TOO
from tests.support.results import run_result

from trax.records import State
from trax.records.metadata import NewRun
from trax.records.states import Origin
from trax.records.work_queue_entry import NewEntry
from trax.store import dead_letters, status, workers
from trax.store.queue import work_queue
from trax.store.runs import metadata

if TYPE_CHECKING:
    import pytest

    from trax.records.status import Status
    from trax.store import Connection, Store

pytestmark = IN_MEMORY_TOO

LOST_AFTER = timedelta(seconds=20)


def read(store: Store, now: datetime) -> Status:
    return store.read(status.load_status, now=now, lost_after=LOST_AFTER)


def entries(connection: Connection, count: int, now: datetime, **how: Any) -> None:
    made = [
        NewEntry(external_id=f"{how}-{number}", train="greet", origin=Origin.QUEUE, **how)
        for number in range(count)
    ]
    work_queue.add(connection, made, now=now)


def failed(connection: Connection, ended_at: datetime) -> None:
    run = metadata.begin(connection, NewRun(external_id="f", train="greet"), now=ended_at)
    ending = run_result(run, State.FAILED)
    metadata.finish(connection, [ending], now=ended_at)


def test_the_status_of_an_empty_database_is_all_zeros(store: Store, now: datetime) -> None:
    found = read(store, now)

    assert (found.ready, found.delayed, found.pending, found.running) == (0, 0, 0, 0)
    assert (found.next_due_at, found.next_delayed_at, found.ready_since) == (None, None, None)
    assert (found.dead_letters, found.failed_last_hour, found.workers) == (0, 0, ())


def test_ready_and_delayed_entries_are_counted_separately(store: Store, now: datetime) -> None:
    later = now + timedelta(minutes=5)
    store.run(entries, 3, now)
    store.run(entries, 2, now, scheduled_at=later)

    found = read(store, now)

    assert (found.ready, found.delayed) == (3, 2)
    assert (found.ready_since, found.next_delayed_at) == (now, later)


def test_counting_stops_where_it_would_cost_too_much(
    store: Store, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "COUNT_LIMIT", 3)
    store.run(entries, 5, now)

    assert read(store, now).ready == 3


def test_only_failures_of_the_last_hour_count(store: Store, now: datetime) -> None:
    store.run(failed, now - timedelta(minutes=61))
    store.run(failed, now - timedelta(minutes=59))

    assert read(store, now).failed_last_hour == 1


def test_running_jobs_and_dead_letters_are_counted(store: Store, now: datetime) -> None:
    store.run(metadata.begin, NewRun(external_id="r", train="greet"), now=now)
    letter = dict.fromkeys(dead_letters.INSERT_COLUMNS) | {
        "train": "greet",
        "reason": "no",
        "retry_count": 0,
        "priority": 0,
    }
    store.run(dead_letters.add, [letter], now=now)

    found = read(store, now)

    assert (found.running, found.dead_letters) == (1, 1)


def test_a_worker_that_is_silent_for_too_long_is_left_out(store: Store, now: datetime) -> None:
    columns = {
        "host": "box",
        "pid": 1,
        "concurrency": 4,
        "trains": "[]",
        "host_environment": "server",
        "host_instance_id": "",
    }
    store.run(workers.register, columns, now=now - timedelta(minutes=1))
    living = store.run(workers.register, columns, now=now - timedelta(seconds=5))

    assert [worker.id for worker in read(store, now).workers] == [living]
