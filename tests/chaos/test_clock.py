"""Processes whose clocks are wrong, and step: the clock of the database is the only one that counts."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.chaos import chaos_fleet
from tests.support.chaos_load import leases_of, under_load
from tests.support.clock_steps import SteppedClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.chaos import ChaosFleet
    from tests.support.chaos_load import Load

HOURS = timedelta(hours=3)
NEVER = 60
"""Nobody is silent for so long: whoever is declared lost, is so by a wrong clock."""
SCHEDULED_EVERY = timedelta(seconds=1)


@pytest.mark.usefixtures("stepped_clocks")
def test_clocks_of_processes_may_step(postgres_url: str, tmp_path: Path) -> None:
    clocks = {role: SteppedClock(tmp_path / f"clock-{role}") for role in ("scheduler", "worker", "run")}
    settings: dict[str, Any] = {**leases_of(clocks), "worker_lost_after": NEVER}
    with chaos_fleet(tmp_path, postgres_url) as fleet:
        for role, clock in clocks.items():
            fleet.start(role, environment={**clock.environment, "SCHEDULED": "1"}, **settings)
        fleet.has_workers(2)
        with under_load(fleet, "stepped") as load:
            load.settles()
            for ahead, behind in (("scheduler", "worker"), ("worker", "run"), ("run", "scheduler")):
                clocks[ahead].step(HOURS)
                clocks[behind].step(-HOURS)
                load.burst()
                wait_for_more(fleet, load)
            for clock in clocks.values():
                clock.step(timedelta(0))
            load.recovers(fleet.store.read(fleet.store.now))
        scheduled = fleet.records(train="scheduled")
        elapsed = fleet.store.read(fleet.store.now) - load.since
        load.judge(may_fail=frozenset())

    steps = {round((job.wall_clock - time.time()) / HOURS.total_seconds()) for job in load.began()}
    assert steps == {-1, 0, 1}, "the clocks did not step"
    assert len(scheduled) <= elapsed / SCHEDULED_EVERY + 3


def wait_for_more(fleet: ChaosFleet, load: Load) -> None:
    """Until jobs were run since now, and what is scheduled as well."""
    jobs, scheduled = len(load.began()) + 15, len(fleet.records(train="scheduled"))
    until(lambda: len(load.began()) >= jobs and len(fleet.records(train="scheduled")) > scheduled)
