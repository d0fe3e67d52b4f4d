"""Runs that a worker claims ahead of a free slot: which ones, and what their records say until they begin."""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, select
from tests.store.test_claim import WORKER
from tests.support.gate_driver import GateDriver
from tests.support.results import run_result

from trax.engine.job_dispatcher import DispatchResult, run_dispatch_cycle
from trax.engine.rescue import recover
from trax.engine.routing import Routing
from trax.records.metadata import ProgressUpdate
from trax.records.states import State
from trax.settings import Settings
from trax.store import workers
from trax.store.gate_memory import GateMemory
from trax.store.runs import metadata, rescue, run_log
from trax.store.runs.claim import ClaimRequest
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from trax.records import Metadata
    from trax.store import Connection, Store

ONE_ATTEMPT = '{"max_retries": 1}'
THREE_ATTEMPTS = '{"max_retries": 3}'


class Claims(GateDriver):
    """A worker that claims ahead. `is_quick`: its visits need no decision, and are made in one statement."""

    def __init__(self, store: Store, now: datetime, *, is_quick: bool) -> None:
        super().__init__(store, now)
        self._memory = GateMemory() if is_quick else None
        self.worker_id = store.run(workers.register, {**WORKER, "dispatches": True}, now=now)
        if is_quick:
            self.queue(1)
            self.claim(1)  # the first visit with a memory is never quick
            self.finish(self.runs()[0])

    def claim(self, slots: int, ahead: int = 0) -> DispatchResult:
        request = ClaimRequest(self.worker_id, "box", slots, frozenset({"work"}), ahead=ahead)
        return self.store.run(self._visit, request)

    def _visit(self, connection: Connection, request: ClaimRequest) -> DispatchResult:
        settings = Settings(max_active_jobs=1_000)
        return run_dispatch_cycle(
            connection, self.store, settings, Routing(), claim_request=request, memory=self._memory
        )

    def finish(self, *runs: Metadata, **columns: Any) -> set[int]:
        results = [run_result(run.id, worker_id=self.worker_id, **columns) for run in runs]
        return self.store.run(metadata.finish, results, now=self.now)

    def has_started(self) -> list[bool]:
        return [run.started_at is not None for run in self.runs("in_progress")]

    def attempts(self) -> list[int]:
        queue = self.store.read(lambda connection: tables(connection).work_queue)
        query = select(queue.c.attempt).order_by(queue.c.id)
        return self.store.read(lambda connection: list(connection.execute(query).scalars()))


@pytest.fixture(params=[False, True], ids=["deciding", "quick"])
def claims(request: pytest.FixtureRequest, store: Store, now: datetime) -> Claims:
    """On SQLite every visit decides."""
    return Claims(store, now, is_quick=request.param)


def add_manifest(connection: Connection, now: datetime) -> int:
    t = tables(connection)
    row = {"external_id": "nightly", "train": "work", "origin": "declared", "schedule_type": "none"}
    row |= {"misfire_policy": "do_nothing", "max_retries": 3, "created_at": now, "updated_at": now}
    row["group_id"] = connection.execute(select(t.manifest_group.c.id)).scalar_one()
    return connection.execute(insert(t.manifest).values(row).returning(t.manifest.c.id)).scalar_one()


def test_a_run_for_a_free_slot_starts_with_its_claim_and_one_ahead_does_not(claims: Claims) -> None:
    claims.queue(4)

    visit = claims.claim(2, ahead=1)

    assert len(visit.claimed) == 3
    assert claims.has_started() == [True, True, False]
    assert len(claims.queued()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"retry": ONE_ATTEMPT},
        {"retry": THREE_ATTEMPTS, "attempt": 3},
        {"attempt": 2},
        {"retry": '{"max_retries": "many"}'},
        {"retry": "[]"},
    ],
    ids=["one attempt", "last attempt", "retry by the default policy", "unreadable policy", "odd policy"],
)
def test_the_last_attempt_of_a_job_is_not_claimed_ahead_and_nothing_overtakes_it(
    claims: Claims, options: dict[str, Any]
) -> None:
    first = claims.queue(2)
    last, after = [*claims.queue(1, **options), *claims.queue(1)]

    assert claims.claim(1, ahead=10).entry_ids == first
    assert claims.claim(0, ahead=10).entry_ids == []
    assert claims.claim(1, ahead=10).entry_ids == [last, after]
    assert claims.has_started() == [True, False, True, False]


def test_a_job_with_attempts_left_is_claimed_ahead(claims: Claims) -> None:
    claims.queue(2, retry=THREE_ATTEMPTS, attempt=2)

    assert len(claims.claim(1, ahead=1).claimed) == 2


def test_a_visit_that_is_cut_short_waits_for_a_slot(claims: Claims) -> None:
    claims.queue(3, retry=ONE_ATTEMPT)

    visit = claims.claim(1, ahead=10)

    assert (len(visit.claimed), visit.is_limited, visit.is_out_of_slots) == (1, True, True)


def test_a_result_records_when_the_code_started(claims: Claims) -> None:
    claims.queue(2)
    claims.claim(0, ahead=2)
    first, second = claims.runs("in_progress")

    claims.finish(first, began=perf_counter())
    claims.finish(second, state=State.FAILED, began=perf_counter() - 3600)

    for run in claims.runs()[-2:]:
        assert run.started_at is not None
        assert run.ended_at is not None
        assert run.created_at <= run.started_at <= run.ended_at, "not before it was admitted"


def test_a_result_does_not_move_the_start_of_a_run_that_had_a_slot(claims: Claims) -> None:
    claims.queue(1)
    claims.claim(1)
    [run] = claims.runs("in_progress")

    claims.finish(run, began=perf_counter() + 3600)

    assert claims.runs()[-1].started_at == run.started_at


def test_a_run_that_never_began_has_no_start(claims: Claims) -> None:
    claims.queue(1)
    claims.claim(0, ahead=1)

    claims.finish(*claims.runs("in_progress"), state=State.CANCELLED)

    assert claims.runs()[-1].started_at is None


def test_the_first_progress_of_a_run_records_its_start(claims: Claims) -> None:
    claims.queue(2)
    claims.claim(1, ahead=1)
    first, second = claims.runs("in_progress")
    began = claims.now + timedelta(seconds=1)
    notes = [
        ProgressUpdate(metadata_id=run.id, started_at=began, current_junction=None, junction_started_at=None)
        for run in (first, second)
    ]

    claims.store.run(run_log.write, notes)

    assert [run.started_at for run in claims.runs("in_progress")] == [first.started_at, began]


def test_a_run_that_waits_in_a_worker_does_not_time_out(claims: Claims) -> None:
    claims.queue(2, timeout_seconds=5.0)
    claims.claim(1, ahead=1)
    later = claims.now + timedelta(hours=1)

    stopped = claims.store.run(rescue.cancel_timed_out, default=timedelta(minutes=20), now=later)

    assert stopped == [claims.runs("in_progress")[0].id]


def test_a_run_that_a_lost_worker_had_not_started_is_requeued_uncounted(claims: Claims) -> None:
    claims.queue(2, retry=THREE_ATTEMPTS)
    claims.claim(1, ahead=1)
    later = claims.now + timedelta(minutes=5)

    claims.store.run(recover, Settings(), now=later)

    lost, released = claims.runs()[-2:]
    assert (lost.state, lost.failure_exception) == (State.FAILED, "WorkerLost")
    assert (released.state, released.failure_exception, released.started_at) == (
        State.CANCELLED,
        "Interrupted",
        None,
    )
    assert claims.attempts()[-2:] == [2, 1]


def test_a_run_released_by_a_lost_worker_is_not_claimed_ahead_again(claims: Claims) -> None:
    """A job that kills its process may have begun without a record: next time it counts."""
    claims.queue(1)
    claims.claim(0, ahead=1)
    claims.store.run(recover, Settings(), now=claims.now + timedelta(minutes=5))

    assert claims.claim(0, ahead=1).claimed == []
    assert len(claims.claim(1, ahead=1).claimed) == 1
    assert claims.has_started() == [True]


def test_jobs_of_schedules_are_claimed_for_free_slots_only(claims: Claims) -> None:
    claims.group("etl")
    claims.queue(2, group="etl", manifest_id=claims.store.run(add_manifest, claims.now))

    assert len(claims.claim(1, ahead=1).claimed) == 1
