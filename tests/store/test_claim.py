from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import IN_MEMORY_TOO
from tests.support.results import run_result

from trax.records import State, WorkerRecord
from trax.records.states import CancelReason
from trax.store import Store, workers
from trax.store.queue import parking
from trax.store.runs import claim, metadata, rescue
from trax.store.runs.claim import ClaimRequest
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

pytestmark = IN_MEMORY_TOO

WORKER = {
    "host": "box",
    "host_environment": "server",
    "host_instance_id": "box-1",
    "pid": 1,
    "concurrency": 4,
    "trains": '["greet"]',
}


def pending(connection: Connection, count: int, now: datetime, **columns: Any) -> list[int]:
    table = tables(connection).metadata
    row = {"external_id": "x", "train": "greet", "state": "pending", "created_at": now, "submitter": "local"}
    made = connection.execute(table.insert().returning(table.c.id), [row | columns] * count)
    return list(made.scalars())


def take(store: Store, slots: int, now: datetime, worker_id: int = 1) -> list[int]:
    taker = ClaimRequest(worker_id, "box", slots, frozenset({"greet"}))
    return [run.metadata_id for run in store.run(claim.claim, taker, now=now)]


def test_the_highest_priority_is_claimed_first_and_the_older_of_equals(store: Store, now: datetime) -> None:
    low = store.run(pending, 2, now)
    high = store.run(pending, 2, now, priority=10)

    assert take(store, 3, now) == [*high, low[0]]
    assert take(store, 3, now) == [low[1]]
    assert take(store, 3, now) == []


def test_a_claimed_run_is_in_progress_and_held(store: Store, now: datetime) -> None:
    (waiting,) = store.run(pending, 1, now - timedelta(minutes=1), input='{"a": 1}')

    take(store, 1, now, worker_id=7)

    run = store.read(metadata.get, waiting)
    assert run
    assert (run.state, run.worker, run.host, run.started_at) == (State.IN_PROGRESS, 7, "box", now)


@pytest.mark.parametrize("columns", [{"train": "other"}, {"submitter": "http"}])
def test_only_runs_for_this_worker_are_claimed(store: Store, now: datetime, columns: dict[str, str]) -> None:
    store.run(pending, 1, now, **columns)

    assert take(store, 1, now) == []


def test_many_workers_claim_each_run_once(url: str, now: datetime) -> None:
    store = Store(url, clock=lambda: now)
    store.open()
    waiting = store.run(pending, 100, now)
    taken: list[int] = []

    def work(worker_id: int) -> None:
        while some := take(store, 3, now, worker_id):
            taken.extend(some)

    threads = [threading.Thread(target=work, args=[number]) for number in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == waiting
    store.close()


def test_a_worker_beats_until_it_is_forgotten(store: Store, now: datetime) -> None:
    worker_id = store.run(workers.register, WORKER, now=now)
    later = now + timedelta(seconds=5)

    assert store.run(workers.record_heartbeat, worker_id, concurrency=4, now=later)
    assert store.read(workers.load_list) == [
        WorkerRecord(
            id=worker_id,
            host="box",
            pid=1,
            concurrency=4,
            trains=("greet",),
            started_at=now,
            heartbeat_at=later,
            host_environment="server",
            host_instance_id="box-1",
        )
    ]
    assert store.run(workers.delete_lost, silent_since=later) == 0
    assert store.run(workers.delete_lost, silent_since=later + timedelta(seconds=1)) == 1
    assert not store.run(workers.record_heartbeat, worker_id, concurrency=4, now=later)


def test_a_worker_that_starts_again_is_another_one(store: Store, now: datetime) -> None:
    first = store.run(workers.register, WORKER, now=now)
    store.run(workers.remove, first)

    assert store.run(workers.register, WORKER, now=now) > first


def test_the_runs_of_a_silent_worker_are_failed_and_its_late_result_is_refused(
    store: Store, now: datetime
) -> None:
    alive = store.run(workers.register, WORKER, now=now)
    silent = store.run(workers.register, WORKER, now=now - timedelta(minutes=1))
    store.run(pending, 2, now)
    (long_one,) = take(store, 1, now - timedelta(days=2), worker_id=alive)
    (lost,) = take(store, 1, now, worker_id=silent)
    why = rescue.ReapCause("rescue", "WorkerLost", "its worker is gone")

    reaped = store.run(
        rescue.fail_runs_of_lost_workers, why, alive_since=now - timedelta(seconds=20), now=now
    )

    assert [run.metadata_id for run in reaped] == [lost]
    late = run_result(lost, worker_id=silent)
    fine = run_result(long_one, worker_id=alive)
    assert store.run(metadata.finish, [late, fine], now=now) == {long_one}


def test_a_worker_sees_what_it_holds_and_which_of_that_to_stop(store: Store, now: datetime) -> None:
    store.run(pending, 3, now)
    mine = take(store, 2, now, worker_id=1)
    others = take(store, 1, now, worker_id=2)

    store.run(rescue.request_cancel, [mine[0], *others])

    held = {run.metadata_id: run.cancel_reason for run in store.read(claim.load_held_runs, 1)}
    assert held == {mine[0]: CancelReason.REQUESTED, mine[1]: None}


def test_a_run_that_a_worker_has_claimed_meanwhile_is_not_returned_to_the_queue(
    store: Store, now: datetime
) -> None:
    """Whoever found them without a worker read them in the same transaction, but did not lock them."""
    runs = store.run(pending, 2, now)
    (claimed,) = take(store, 1, now, worker_id=7)

    cancelled = store.run(parking.cancel_unclaimed, runs, reason="no worker", now=now)

    assert cancelled == runs[1:]
    run = store.read(metadata.get, claimed)
    assert run
    assert (run.state, run.worker, run.failure_exception) == (State.IN_PROGRESS, 7, None)


def test_a_run_is_claimed_by_its_id_once(store: Store, now: datetime) -> None:
    runs = store.run(pending, 3, now, submitter="http")
    store.run(claim.claim_by_id, runs[:1], worker_id=1, host="box", now=now)
    store.run(metadata.finish, [run_result(runs[0], worker_id=1)], now=now)
    store.run(claim.claim_by_id, runs[1:2], worker_id=1, host="box", now=now)

    claimed = store.run(claim.claim_by_id, runs, worker_id=2, host="other", now=now)

    assert [run.metadata_id for run in claimed] == runs[2:]
    stored = [store.read(metadata.get, run_id) for run_id in runs]
    assert [(run.state, run.worker) for run in stored if run] == [
        (State.COMPLETED, 1),
        (State.IN_PROGRESS, 1),
        (State.IN_PROGRESS, 2),
    ]


def test_only_runs_in_progress_are_requested_to_cancel(store: Store, now: datetime) -> None:
    runs = store.run(pending, 3, now)
    ended, running = take(store, 2, now, worker_id=1)
    store.run(metadata.finish, [run_result(ended, worker_id=1)], now=now)

    assert store.run(rescue.request_cancel, runs) == [running]
    assert store.run(rescue.request_cancel, runs) == [], "it was asked before"

    stored = [store.read(metadata.get, run_id) for run_id in runs]
    assert [run.cancel_requested for run in stored if run] == [run_id == running for run_id in runs]
