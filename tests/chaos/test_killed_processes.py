"""Processes that are killed or suspended: others continue from their records."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.backends import is_in_transaction
from tests.support.chaos import BEAT_SECONDS, ChaosFleet, chaos_fleet
from tests.support.waiting import until

from trax.records import State

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOST_AFTER = timedelta(seconds=2)
MARGIN = timedelta(seconds=10)
"""A busy machine may be late; nothing waits for this to pass."""


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Generator[ChaosFleet]:
    with chaos_fleet(tmp_path, postgres_url) as built:
        yield built


def start(fleet: ChaosFleet, *words: str, limit: int | None = None) -> int:
    return fleet.start(*words, worker_lost_after=LOST_AFTER.total_seconds(), max_active_jobs=limit).pid


def test_a_run_of_a_killed_worker_is_retried_by_another_within_the_limits(fleet: ChaosFleet) -> None:
    names = [f"job-{number}" for number in range(8)]
    start(fleet, "scheduler", limit=2)
    for _ in range(2):
        start(fleet, "worker", "--concurrency", "1", limit=2)
    fleet.has_workers(2)
    fleet.hold(*names[:2])
    fleet.queue(*names)
    victim, other = fleet.began(*names[:2])
    alive_until = datetime.now(UTC)

    os.kill(victim.pid, signal.SIGKILL)
    fleet.release(victim.name, other.name)
    fleet.has_completed(names, at_most=2)

    lost, again = fleet.records(victim.name)
    assert (lost.state, lost.failure_exception, lost.attempt) == (State.FAILED, "WorkerLost", 1)
    assert (again.state, again.attempt, again.output) == (State.COMPLETED, 2, other.pid)
    assert lost.ended_at
    beat = timedelta(seconds=BEAT_SECONDS)
    assert LOST_AFTER - 2 * beat < lost.ended_at - alive_until < LOST_AFTER + MARGIN
    assert [record.state for record in fleet.records(other.name)] == [State.COMPLETED]
    fleet.nothing_is_lost_or_doubled(names)


def test_a_suspended_worker_is_refused_and_continues_as_a_new_one(
    fleet: ChaosFleet, postgres_url: str
) -> None:
    start(fleet, "scheduler")
    lost_after = LOST_AFTER.total_seconds()
    pair = {
        name: fleet.start(
            "worker", url=f"{postgres_url}?application_name={name}", worker_lost_after=lost_after
        )
        for name in ("one", "other")
    }
    fleet.has_workers(2)
    fleet.hold("long", "calm")
    fleet.queue("long")
    (first,) = fleet.began("long")
    (name, still), (_, live) = sorted(pair.items(), key=lambda one: one[1].pid != first.pid)

    still.send(signal.SIGSTOP)
    while is_in_transaction(postgres_url, name):
        still.send(signal.SIGCONT)
        still.send(signal.SIGSTOP)
    fleet.queue("calm")
    until(lambda: {run.pid for run in fleet.ran("long")} == {still.pid, live.pid})
    fleet.release("long")
    until(lambda: fleet.records("long")[-1].state is State.COMPLETED)
    still.send(signal.SIGCONT)
    until(lambda: "too late" in still.log)
    fleet.has_workers(2)

    lost, again = fleet.records("long")
    assert (lost.state, lost.failure_exception, lost.output) == (State.FAILED, "WorkerLost", None)
    assert (again.state, again.attempt, again.output) == (State.COMPLETED, 2, live.pid)
    assert f"worker {lost.worker} missed its heartbeat" in still.log
    assert lost.worker not in {worker.id for worker in fleet.workers()}

    fleet.release("calm")
    fleet.has_completed(["calm"])
    assert live.ended(signal.SIGTERM) == 0
    fleet.queue("later")
    fleet.has_completed(["later"])
    assert fleet.ran("later")[0].pid == still.pid
    (calm,) = fleet.records("calm")  # it took longer than a worker may be silent, and nobody touched it
    assert (calm.attempt, calm.state) == (1, State.COMPLETED)
    fleet.nothing_is_lost_or_doubled(["long", "calm", "later"])


@pytest.mark.parametrize("where", ["before it has taken", "in the call"])
def test_a_run_admitted_by_a_killed_dispatcher_is_handed_over_by_another(
    postgres_url: str, tmp_path: Path, where: str
) -> None:
    with chaos_fleet(tmp_path, postgres_url, "chaos_courier.py") as fleet:
        doomed = fleet.start("scheduler", dies=where, hand_over_timeout=1)
        fleet.queue("parcel")
        assert doomed.ended() == -signal.SIGKILL
        until(lambda: [record.state for record in fleet.records()] == [State.PENDING])

        fleet.start("scheduler", hand_over_timeout=1)
        fleet.has_completed(["parcel"])

        (record,) = fleet.records()
        assert fleet.lines("handed") == [str(record.id)]
        assert (record.attempt, record.submitter) == (1, "courier")
