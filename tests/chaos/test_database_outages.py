"""A database that goes away under load: it cuts connections, restarts, crashes, or its answers get lost."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.support.backends import cut_off
from tests.support.chaos import ChaosFleet, chaos_fleet
from tests.support.chaos_proxy import proxy_to
from tests.support.databases import PostgresDatabases
from tests.support.waiting import until

from trax.records import State
from trax.testing.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime
    from pathlib import Path

    from trax.testing.postgres import StopMode

NAMES = [f"job-{number}" for number in range(400)]
NEVER = 60
"""Nobody is taken for dead while the database is away: what goes on, goes on by itself."""


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    with postgres_server(durable=True) as started:
        yield started


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Generator[ChaosFleet]:
    with chaos_fleet(tmp_path, _named(postgres_url)) as built:
        yield built


def start(fleet: ChaosFleet, url: str) -> None:
    """Two that do everything, one that only works."""
    for role in ("run", "run", "worker"):
        fleet.start(role, url=url, local_worker_count=4, max_active_jobs=10, worker_lost_after=NEVER)
    fleet.has_workers(3)


def test_every_connection_may_be_cut_again_and_again(fleet: ChaosFleet, postgres_url: str) -> None:
    start(fleet, postgres_url)
    fleet.queue(*NAMES)

    for share in range(1, 8):
        until(lambda share=share: fleet.count(State.COMPLETED) >= share * len(NAMES) // 8)
        cut_off(postgres_url, only="trax%")
    fleet.has_completed(NAMES, at_most=10)

    fleet.nothing_is_lost_or_doubled(NAMES)
    assert fleet.count(State.FAILED) == 0


def test_a_commit_whose_answer_is_lost_loses_no_job_and_doubles_none(
    fleet: ChaosFleet, postgres_url: str
) -> None:
    names = NAMES[:200]
    with proxy_to(postgres_url) as proxy:
        start(fleet, proxy.url)
        proxy.every = 9
        fleet.queue(*names)
        fleet.has_completed(names, at_most=10)

    assert proxy.lost > 5
    fleet.nothing_is_lost_or_doubled(names)
    assert fleet.count(State.FAILED) == 0


@pytest.mark.postgresql
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_may_stop_and_come_back(server: PostgresServer, tmp_path: Path, mode: StopMode) -> None:
    databases = PostgresDatabases(server.url)
    with databases.database() as url, chaos_fleet(tmp_path, _named(url)) as fleet:
        start(fleet, url)
        fleet.queue(*NAMES)

        for share in (1, 2, 3):
            until(lambda share=share: fleet.count(State.COMPLETED) >= share * len(NAMES) // 4)
            server.restart(mode)
            fleet.forget()
        fleet.has_completed(NAMES, at_most=10)

        fleet.nothing_is_lost_or_doubled(NAMES)
        assert fleet.count(State.FAILED) == 0


@pytest.mark.parametrize("how", ["stopped", "locked"])
@pytest.mark.postgresql
def test_an_outage_of_the_whole_fleet_fails_no_run(server: PostgresServer, tmp_path: Path, how: str) -> None:
    """Also one that lasts longer than a worker may be silent, or a lock that holds up every heartbeat."""
    databases, silence = PostgresDatabases(server.url), 2.0
    with databases.database() as url, chaos_fleet(tmp_path, _named(url)) as fleet:
        for _ in range(2):
            fleet.start("run", url=url, local_worker_count=1, worker_lost_after=silence)
        fleet.has_workers(2)
        fleet.hold("one", "two")
        fleet.queue("one", "two")
        fleet.began("one", "two")
        before = beats(fleet)

        with outage(server, url, how):
            fleet.forget()
            over_at = time.monotonic() + 3 * silence
            until(lambda: time.monotonic() > over_at)
        until(lambda: beats(fleet) > before + timedelta(seconds=6 * silence))
        fleet.release("one", "two")
        fleet.has_completed(["one", "two"])

        assert fleet.count(State.FAILED) == 0
        fleet.nothing_is_lost_or_doubled(["one", "two"])


def beats(fleet: ChaosFleet) -> datetime:
    """When the worker that has been silent for longest has beaten."""
    return min(worker.heartbeat_at for worker in fleet.workers())


@contextmanager
def outage(server: PostgresServer, url: str, how: str) -> Generator[None]:
    if how == "stopped":
        server.stop("immediate")
        yield
        server.start()
        return
    with psycopg.connect(url) as outsider:
        outsider.execute("LOCK TABLE trax.worker IN ACCESS EXCLUSIVE MODE")
        yield


def _named(url: str) -> str:
    """The address for whoever only looks on: it is not cut off with the others."""
    return f"{url}?application_name=onlooker"
