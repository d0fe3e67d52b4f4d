"""Two transactions that want the same runs: one gets each, and neither waits where there is other work."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import NOON
from tests.store.test_claim import WORKER
from tests.support.open_transaction import TIMEOUT_SECONDS, WAITING
from tests.support.waiting import until

from trax.records import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import Store, admission, workers
from trax.store.admission import Admission
from trax.store.queue import parking, requeue, work_queue
from trax.store.runs import claim, hand_over, metadata
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import ThreadPoolExecutor

    from trax.records import WorkQueueEntry
    from trax.store import Connection

    Work = Callable[[Connection], Any]


LONG_AGO = NOON - timedelta(hours=1)


class Pair:
    """Two transactions: the second begins after the work of the first, and before its commit."""

    def __init__(self, store: Store, threads: ThreadPoolExecutor) -> None:
        self.store = store
        self._threads = threads
        self.has_waited = False

    def __call__(self, first: Work, second: Work) -> tuple[Any, Any]:
        """What both return."""

        def both(connection: Connection) -> tuple[Any, Any]:
            result = first(connection)
            other = self._threads.submit(self.store.run, second)
            until(lambda: other.done() or self._is_waiting())
            self.has_waited = not other.done()
            return result, other

        result, other = self.store.run(both)
        return result, other.result(TIMEOUT_SECONDS)

    def _is_waiting(self) -> bool:
        return self.store.read(lambda connection: connection.execute(WAITING).scalar_one()) > 0

    def entries(self, count: int) -> list[int]:
        """Entries in the queue since an hour ago."""
        new = [
            NewEntry(external_id=new_external_id(), train="greet", origin=Origin.QUEUE) for _ in range(count)
        ]
        return self.store.run(work_queue.add, new, now=LONG_AGO)

    def runs(self, count: int, submitter: str = "local") -> list[int]:
        """Runs that were admitted an hour ago, and not claimed since."""
        admissions = [Admission(entry_id, submitter) for entry_id in self.entries(count)]
        return self.store.run(admission.admit, admissions, now=LONG_AGO).metadata_ids

    def entry(self, entry_id: int) -> WorkQueueEntry:
        entry = self.store.read(work_queue.get, entry_id)
        assert entry
        return entry


@pytest.fixture
def pair(postgres_url: str, threads: ThreadPoolExecutor) -> Generator[Pair]:
    store = Store(postgres_url, clock=lambda: NOON)
    store.open()
    assert [store.run(workers.register, WORKER, now=NOON) for _ in range(2)] == [1, 2]
    yield Pair(store, threads)
    store.close()


def claim_as(worker_id: int, slots: int) -> Work:
    request = ClaimRequest(worker_id, "box", slots, frozenset({"greet"}))
    return lambda connection: [run.metadata_id for run in claim.claim(connection, request, now=NOON)]


def claim_by_id_as(worker_id: int, runs: list[int]) -> Work:
    def work(connection: Connection) -> list[int]:
        claimed = claim.claim_by_id(connection, runs, worker_id=worker_id, host="box", now=NOON)
        return [run.metadata_id for run in claimed]

    return work


def reserve(connection: Connection) -> list[int]:
    until_then = NOON + timedelta(minutes=1)
    reserved = hand_over.reserve(connection, submitter="http", limit=2, until=until_then, now=NOON)
    return [run.metadata_id for run in reserved]


def test_a_worker_claims_other_runs_than_those_that_another_is_claiming(pair: Pair) -> None:
    runs = pair.runs(5)

    one, other = pair(claim_as(1, 3), claim_as(2, 3))

    assert (one, other) == (runs[:3], runs[3:])
    assert not pair.has_waited


def test_two_receivers_of_a_run_claim_it_once(pair: Pair) -> None:
    runs = pair.runs(2, submitter="http")

    one, other = pair(claim_by_id_as(1, runs[:1]), claim_by_id_as(2, runs))

    assert (one, other) == (runs[:1], runs[1:])
    stored = pair.store.read(metadata.get, runs[0])
    assert stored
    assert stored.worker == 1


def test_two_servers_that_reserve_runs_get_different_ones(pair: Pair) -> None:
    runs = pair.runs(3, submitter="http")

    one, other = pair(reserve, reserve)

    assert (one, other) == (runs[:2], runs[2:])
    assert not pair.has_waited


def test_a_run_that_begins_meanwhile_is_not_handed_over_again(pair: Pair) -> None:
    (run,) = pair.runs(1, submitter="http")

    def hand_over_again(connection: Connection) -> list[int]:
        return hand_over.return_to_outbox(connection, waiting_since=NOON, max_attempts=5, now=NOON)

    assert pair(claim_by_id_as(1, [run]), hand_over_again) == ([run], [])


def test_a_run_that_begins_meanwhile_is_not_failed_by_a_refusal(pair: Pair) -> None:
    (run,) = pair.runs(1, submitter="http")
    assert pair.store.run(reserve) == [run]
    refused = [hand_over.FailedHandOver(run, "Refused", "no room")]
    until_then = NOON + timedelta(minutes=1)

    def fail(connection: Connection) -> list[Any]:
        return hand_over.fail(connection, refused, junction="hand_over", until=until_then, now=NOON)

    assert pair(claim_by_id_as(1, [run]), fail) == ([run], [])
    assert pair.has_waited


def test_an_entry_that_is_withdrawn_meanwhile_is_not_unparked(pair: Pair) -> None:
    (entry_id,) = pair.entries(1)
    pair.store.run(parking.park, {entry_id: "greet"}, now=NOON)

    withdrawn, unparked = pair(
        lambda connection: len(requeue.withdraw(connection, [entry_id])),
        lambda connection: parking.unpark(connection, ["greet"], limit=5),
    )

    assert (withdrawn, unparked) == (1, 0)
    entry = pair.entry(entry_id)
    assert (entry.status, entry.parked_at) == (QueueStatus.CANCELLED, NOON)


def test_an_entry_that_is_withdrawn_meanwhile_is_not_parked(pair: Pair) -> None:
    (entry_id,) = pair.entries(1)

    pair(
        lambda connection: requeue.withdraw(connection, [entry_id]),
        lambda connection: parking.park(connection, {entry_id: "greet"}, now=NOON),
    )

    entry = pair.entry(entry_id)
    assert (entry.status, entry.parked_at) == (QueueStatus.CANCELLED, None)
