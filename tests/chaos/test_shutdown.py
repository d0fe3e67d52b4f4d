"""Processes that are asked to stop, or whose parent or child dies, while there is work."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.chaos import ChaosFleet, chaos_fleet, process_state
from tests.support.chaos_proxy import proxy_to
from tests.support.waiting import until

from trax.records import State

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

NAMES = [f"job-{number}" for number in range(200)]
HELD = NAMES[:4]


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Generator[ChaosFleet]:
    with chaos_fleet(tmp_path, postgres_url) as built:
        yield built


def test_a_deploy_under_load_fails_nothing_and_counts_nothing(fleet: ChaosFleet) -> None:
    fleet.start("scheduler", max_active_jobs=8)
    old = [fleet.start("worker", "--concurrency", "4") for _ in range(2)]
    fleet.has_workers(2)
    fleet.hold(*HELD)
    fleet.queue(*NAMES)
    held = fleet.began(*HELD)
    until(lambda: fleet.count(State.COMPLETED) > len(NAMES) // 8)

    new = fleet.start("worker", "--concurrency", "4")
    codes = [process.ended(signal.SIGTERM) for process in old]
    until(lambda: all(len(fleet.ran(name)) > 1 for name in HELD))
    fleet.release(*HELD)
    fleet.has_completed(NAMES, at_most=8)

    assert codes == [0, 0]
    fleet.nothing_is_lost_or_doubled(NAMES)
    assert (fleet.count(State.FAILED), {record.attempt for record in fleet.records()}) == (0, {1})
    for run in held:
        interrupted, *_, completed = fleet.records(run.name)
        assert (interrupted.id, interrupted.failure_exception) == (run.metadata_id, "Interrupted")
        assert completed.output == new.pid


@pytest.mark.parametrize("role", ["run", "worker"])
def test_a_process_whose_database_host_is_silent_ends_on_sigterm(
    fleet: ChaosFleet, postgres_url: str, role: str
) -> None:
    with proxy_to(postgres_url) as proxy:
        process = fleet.start(role, url=proxy.url)
        until(lambda: "Ctrl-C stops" in process.log)
        proxy.is_black_hole = True
        code = process.ended(signal.SIGTERM)

    assert code in {0, 1}
    assert "Traceback" not in process.log


def test_a_process_that_waits_for_its_first_connection_ends_on_sigterm(
    fleet: ChaosFleet, postgres_url: str
) -> None:
    with proxy_to(postgres_url) as proxy:
        proxy.is_black_hole = True
        process = fleet.start("run", url=proxy.url)
        until(lambda: proxy.swallowed > 0)

        assert process.ended(signal.SIGTERM) in {0, 1}


def test_a_run_of_a_killed_child_process_is_run_again(fleet: ChaosFleet) -> None:
    fleet.start("scheduler", worker_lost_after=5)
    parent = fleet.start("worker", "--processes", "2", "--concurrency", "1", worker_lost_after=5)
    fleet.has_workers(2)
    fleet.hold("one", "two")
    fleet.queue("one", "two")
    victim, other = fleet.began("one", "two")

    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: len(fleet.ran("one")) == 2)
    fleet.release("one", "two")
    fleet.has_completed(["one", "two"])

    replacement = fleet.ran("one")[-1]
    assert len({parent.pid, victim.pid, other.pid, replacement.pid}) == 4
    assert [record.failure_exception for record in fleet.records("one")] == ["WorkerLost", None]
    fleet.nothing_is_lost_or_doubled(["one", "two"])
    assert parent.ended(signal.SIGTERM) == 0


def test_the_child_processes_stop_gracefully_when_their_parent_is_killed(fleet: ChaosFleet) -> None:
    fleet.start("scheduler")
    parent = fleet.start("worker", "--processes", "2", "--concurrency", "1")
    fleet.has_workers(2)
    fleet.hold("one", "two")
    fleet.queue("one", "two")
    began = fleet.began("one", "two")

    assert parent.ended(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not any(is_alive(run.pid) for run in began))
    assert fleet.workers() == []
    fleet.release("one", "two")
    fleet.start("worker")
    fleet.has_completed(["one", "two"])

    assert {record.failure_exception for record in fleet.records()} == {"Interrupted", None}
    assert {record.attempt for record in fleet.records()} == {1}
    fleet.nothing_is_lost_or_doubled(["one", "two"])


def test_a_train_that_ignores_cancellation_does_not_hold_up_the_end_of_its_process(
    fleet: ChaosFleet,
) -> None:
    server = fleet.start("run")
    fleet.has_workers(1)
    fleet.hold("one")
    fleet.queue("one", train="deaf")
    fleet.began("one")

    code = server.ended(signal.SIGTERM)
    (interrupted,) = fleet.records(train="deaf")
    fleet.release("one")
    fleet.start("run")
    until(lambda: len(fleet.lines("late")) == 1)
    until(lambda: fleet.records(train="deaf")[-1].state is State.COMPLETED)

    assert (code, interrupted.failure_exception) == (0, "Interrupted")
    assert [record.attempt for record in fleet.records(train="deaf")] == [1, 1]


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody has asked after does not."""
    return process_state(pid) not in {None, "Z"}
