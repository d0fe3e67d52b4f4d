"""Runs on a Ray cluster, started here: `pytest -m ray`."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.preloaded import TRAX
from tests.support.ray_cluster import APP, PROJECT, Cluster, RayEngine, WholeCluster
from tests.support.waiting import until

from trax import Submission, Trax
from trax.errors import DefinitionError
from trax.remote.ray.workers import RayWorkers
from trax.testing.submitter_contract import SCENARIOS, Scenario, Workspace, harness, name_of, play, scenarios

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(sys.platform != "linux", reason="Ray is among our requirements on Linux only"),
]

DOWN = scenarios.jobs_queued_while_the_worker_side_is_down_run_when_it_is_back
TIMEOUT_SECONDS = 200
"""A process of Ray's takes seconds to start, on a busy machine many."""


@pytest.fixture(scope="module")
def one_cluster() -> Generator[Cluster]:
    made = Cluster()
    yield made
    made.remove()


@pytest.fixture
def cluster(one_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in one_cluster.access.items():
        monkeypatch.setenv(name, value)
    one_cluster.begin()
    return one_cluster


@pytest.fixture
def site(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(harness, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    return Workspace(postgres_url, tmp_path)


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one is not DOWN], ids=name_of)
async def test_ray_keeps_the_contract(scenario: Scenario, cluster: Cluster, site: Workspace) -> None:
    with closing(RayEngine(cluster, site)) as engine:
        await play(scenario, engine, site)


async def test_a_lost_cluster_does_not_stop_the_scheduler(cluster: Cluster, site: Workspace) -> None:
    with closing(WholeCluster(cluster, site)) as engine:
        await play(DOWN, engine, site)


def run(metadata_id: int, train: str = "work") -> Submission:
    return Submission(metadata_id=metadata_id, external_id=str(metadata_id), train=train)


def test_resources_of_a_train_are_passed_to_ray_and_refusals_are_reported(cluster: Cluster) -> None:
    needs = {"impossible": {"num_gpus": -1}, "rare": {"resources": {"unicorn": 1}}}
    workers = RayWorkers(APP, name="needs", address=cluster.address, resources=needs)
    try:
        refused, taken = workers.submit([run(1, "impossible"), run(2, "rare")])
        again = workers.submit([run(2, "rare")])
        workers.withdraw([run(2, "rare")])
    finally:
        workers.close()
        cluster.end_workers(signal.SIGKILL)

    assert "num_gpus" in str(refused)
    assert (taken, again) == (None, [None])


def test_a_task_that_cannot_start_is_reported_at_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    workers = RayWorkers("no.such.module:app", name="lost", address=cluster.address)
    try:
        workers.submit([run(1)])
        until(lambda: bool(caplog.messages), within_seconds=TIMEOUT_SECONDS)
    finally:
        workers.close()
        cluster.end_workers(signal.SIGKILL)

    assert caplog.messages[0].startswith("run 1 did not start in Ray: ")
    assert "No module named 'no'" in caplog.messages[0]


CRAWLS = 12


async def test_the_page_works_as_it_is_written(
    cluster: Cluster, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the address of the database is another one; Ray finds the cluster as its users say it."""
    page = (PROJECT / "docs" / "how-to" / "run-trains-on-ray.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    written = shown.replace("postgresql://jobs@db/jobs", postgres_url)
    (tmp_path / "jobs.py").write_text(written, encoding="utf-8")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    jobs: dict[str, Any] = {}
    exec(written, jobs)  # noqa: S102 - as the page does
    app: Trax = jobs["app"]
    scheduler = await asyncio.create_subprocess_exec(TRAX, "scheduler", "jobs:app", cwd=tmp_path)
    try:
        inputs = [f"https://example.com/{number}" for number in range(CRAWLS)]
        crawled = await app.queue_many(jobs["crawl"], inputs)
        embedded = await app.queue(jobs["embed"], "ab")
        runs = [await entry.wait(timeout=TIMEOUT_SECONDS) for entry in (*crawled, embedded)]
        versions = {view.worker.id: view.worker.app_version for view in await app.workers.list()}
    finally:
        scheduler.terminate()
        await scheduler.wait()
        app.close()
        cluster.end_workers(signal.SIGKILL)

    assert [run.output for run in runs] == [*inputs, [97.0, 98.0]]
    assert {run.submitter for run in runs} == {"ray"}
    assert {versions[run.worker or 0] for run in runs} == {"2.5.1"}


async def test_an_unreachable_cluster_raises_at_once() -> None:
    workers = RayWorkers(APP, address="127.0.0.1:1")

    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(workers.submit, [run(1)])


def test_an_app_is_named_by_its_module() -> None:
    with pytest.raises(DefinitionError, match="RayWorkers needs an app such as 'jobs:app'"):
        RayWorkers("jobs")
