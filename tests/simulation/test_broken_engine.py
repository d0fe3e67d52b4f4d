"""The simulation notices a broken engine: each test breaks one rule on purpose, and the promise must fail."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import text, update
from tests.support.simulated_promises import BrokenPromise, Promises
from tests.support.simulated_world import run_world

from trax.engine import finish, job_dispatcher, metadata_cleanup
from trax.engine.capacity import Capacity, select_within
from trax.inspect.simulated_worker import SimulatedPool
from trax.inspect.virtual_server import VirtualServer
from trax.records.result import ResultKind
from trax.schedule import decide
from trax.store import Store, workers
from trax.store.manifests import manifest_results
from trax.store.queue import requeue
from trax.store.runs import metadata
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    import pytest
    from sqlalchemy import Connection

    from trax.records.result import ManifestChange, RunResult
    from trax.store.runs.claim import Claimed

SEEDS = range(1, 7)


def events_of_failure(seeds: Iterable[int] = SEEDS) -> str:
    """What the first seed says whose simulation fails."""
    for seed in seeds:
        try:
            run_world(seed)
        except BrokenPromise as broken:
            return str(broken)
    raise AssertionError("the simulation noticed nothing")


def is_never(*_: object) -> bool:
    return False


def does_nothing(*_: object) -> None:
    pass


def puts_nothing_back(*_: object, **__: object) -> list[int]:
    return []


def test_a_late_finisher_that_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def finish_anything(connection: Connection, results: Sequence[RunResult], *, now: datetime) -> set[int]:
        run = tables(connection).metadata
        for one in results:
            values = {"state": str(one.state), "ended_at": now, "failure_exception": one.failure_exception}
            connection.execute(update(run).where(run.c.id == one.metadata_id).values(values))
        return {one.metadata_id for one in results}

    monkeypatch.setattr(metadata, "finish", finish_anything)
    monkeypatch.setattr(metadata, "finish_and_commit", finish_anything)

    assert "promise 2" in events_of_failure()


def test_a_limit_of_a_group_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of this failure also say how to repeat it."""
    monkeypatch.setattr(Capacity, "group_is_full", is_never)

    events = events_of_failure()

    assert "promise 4" in events
    assert "dispatcher: runs " in events
    repeat = re.search(
        r"replay: .venv/bin/python -m tests.simulation.soak --profile short --seed (\d+)", events
    )
    assert repeat is not None
    assert events == events_of_failure([int(repeat[1])])


def test_a_global_limit_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Capacity, "free_under_limit", 1000)

    events = events_of_failure()

    assert "promise 4" in events
    assert "max_active_jobs is" in events


def test_a_second_scheduled_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    attach: Callable[[Promises, Any], None] = Promises._attach  # pyright: ignore[reportPrivateUsage]

    def drop_index_and_attach(self: Promises, connection: Connection) -> None:
        connection.execute(text("DROP INDEX trax_work_queue_one_scheduled_idx"))
        attach(self, connection)

    monkeypatch.setattr(Promises, "_attach", drop_index_and_attach)
    monkeypatch.setattr(decide, "_check_active_runs", does_nothing)

    assert "promise 6" in events_of_failure()


def test_an_order_that_ignores_priorities(monkeypatch: pytest.MonkeyPatch) -> None:
    def select_backwards(capacity: Capacity, entries: Sequence[Any]) -> list[Any]:
        return select_within(capacity, list(reversed(entries)))

    monkeypatch.setattr(job_dispatcher, "select_with_shares", select_backwards)

    assert "promise 5" in events_of_failure()


def test_an_interrupted_job_that_is_not_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "put_back", puts_nothing_back)

    assert "promise 1" in events_of_failure()


def test_a_live_worker_that_is_declared_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = workers.delete_lost

    def delete_too_early(connection: Connection, *, silent_since: datetime) -> int:
        return delete(connection, silent_since=silent_since + timedelta(seconds=40))

    monkeypatch.setattr(workers, "delete_lost", delete_too_early)

    assert "promise 7" in events_of_failure()


def test_an_interrupted_job_that_counts_as_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back = requeue.put_back

    def put_back_and_count(connection: Connection, moments: Any, *, attempts: int) -> list[int]:
        return put_back(connection, moments, attempts=attempts or 1)

    monkeypatch.setattr(requeue, "put_back", put_back_and_count)

    assert "promise 8" in events_of_failure()


def test_an_interrupted_run_that_counts_as_a_failure_of_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "change_after", change_after_any_failure)

    assert "promise 8" in events_of_failure()


def change_after_any_failure(manifest: Any, results: Sequence[RunResult], now: datetime, chance: Any) -> Any:
    failures = [replace_kind(result) for result in results]
    return decide.change_after(manifest, failures, now, chance)


def replace_kind(result: RunResult) -> RunResult:
    is_put_back = result.kind is ResultKind.INTERRUPTED
    return result._replace(kind=ResultKind.FAILURE) if is_put_back else result


def test_a_stop_that_leaves_no_time_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = VirtualServer.stop

    def stop_at_once(self: VirtualServer) -> None:
        stop(self)
        if self.worker is not None:
            self.worker.pool.interrupt_all("the worker stops")

    monkeypatch.setattr(VirtualServer, "stop", stop_at_once)

    assert "promise 8" in events_of_failure()


def test_a_stopping_server_that_still_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_but_claim(self: VirtualServer) -> None:
        self.is_stopping = True

    monkeypatch.setattr(VirtualServer, "stop", stop_but_claim)

    assert "promise 8" in events_of_failure()


def test_a_schedule_that_goes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    write = manifest_results.write

    def forget_next_due(connection: Connection, changes: Iterable[ManifestChange]) -> None:
        write(connection, [replace(change, next_due_at=None) for change in changes])

    monkeypatch.setattr(finish.manifest_results, "write", forget_next_due)

    assert "promise 11" in events_of_failure()


def test_records_that_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    both = metadata_cleanup.ADMINISTRATIVE_TRAINS | {"work"}
    monkeypatch.setattr(metadata_cleanup, "ADMINISTRATIVE_TRAINS", both)

    assert "was deleted" in events_of_failure()


def test_a_run_that_is_executed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = SimulatedPool.add

    def begin_twice(self: SimulatedPool, jobs: Sequence[Claimed]) -> None:
        begin(self, [*jobs, *jobs])

    monkeypatch.setattr(SimulatedPool, "add", begin_twice)

    assert "promise 2" in events_of_failure()


def test_a_time_that_is_not_the_database_s(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Store.now

    def late_now(self: Store, connection: Connection) -> datetime:
        return now(self, connection) - timedelta(seconds=1)

    monkeypatch.setattr(Store, "now", late_now)

    assert "not the time of the database" in events_of_failure()
