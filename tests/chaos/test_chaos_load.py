"""The load of these tests notices a fleet that did not recover: each test leaves a fault in place."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support import chaos_load
from tests.support.chaos import chaos_fleet
from tests.support.chaos_load import LIMIT, start_fleet, under_load

from trax import Trax

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.support.chaos import ChaosFleet, Process
    from tests.support.chaos_load import Load


class Site:
    def __init__(self, fleet: ChaosFleet, worker: Process, load: Load) -> None:
        self.fleet, self.worker, self.load = fleet, worker, load

    def recovers(self) -> None:
        self.load.recovers(self.fleet.store.read(self.fleet.store.now))


@pytest.fixture
def site(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Site]:
    with chaos_fleet(tmp_path, postgres_url) as fleet:
        worker, _ = start_fleet(fleet, "worker", "run")
        with under_load(fleet, "noticed") as load:
            load.settles()
            monkeypatch.setattr(chaos_load, "MOST_BURSTS", 2)
            yield Site(fleet, worker, load)


def kill_a_worker(site: Site) -> None:
    site.worker.ended(signal.SIGKILL)


def suspend_a_worker(site: Site) -> None:
    site.worker.send(signal.SIGSTOP)


def halve_the_limit(site: Site) -> None:
    with closing(Trax(site.fleet.url)) as operator:
        asyncio.run(operator.settings.update(max_active_jobs=LIMIT // 2))


@pytest.mark.parametrize(
    ("fault", "noticed"),
    [
        (kill_a_worker, "a worker did not come back"),
        (suspend_a_worker, "these began no job"),
        (halve_the_limit, f"of \\({LIMIT}, 2\\) places"),
    ],
)
def test_a_fault_that_stays_is_noticed(site: Site, fault: Callable[[Site], None], noticed: str) -> None:
    fault(site)

    with pytest.raises(AssertionError, match=noticed):
        site.recovers()
