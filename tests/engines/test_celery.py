"""Celery's workers keep the contract of engines, with a server as broker and without."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.support.celery_engine import CeleryEngine, are_handed_over, has_failed
from tests.support.scenarios import CROWD, TURNS

from trax.records.states import State
from trax.testing.submitter_contract import Scenario, ScenarioHarness, Workspace, name_of, play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rabbitmq import Rabbit
    from tests.support.valkey import Valkey

    Broker: TypeAlias = Rabbit | Valkey


@pytest.fixture(params=["valkey", "rabbit"])
def broker(request: pytest.FixtureRequest) -> Broker:
    return request.getfixturevalue(request.param)


@pytest.fixture
def site(postgres_url: str, tmp_path: Path) -> Workspace:
    return Workspace(postgres_url, tmp_path, crowd=CROWD)


def engine(broker: Broker, *options: str) -> CeleryEngine:
    return CeleryEngine(broker.url, *options, queue=broker.queue())


@pytest.mark.parametrize("scenario", TURNS, ids=name_of)
async def test_a_worker_that_forks_keeps_the_contract(
    scenario: Scenario, broker: Broker, site: Workspace
) -> None:
    await play(scenario, engine(broker, "-c", "5" if scenario is TURNS[0] else "2"), site)


@pytest.mark.parametrize("scenario", TURNS, ids=name_of)
async def test_a_worker_with_threads_and_a_folder_for_a_broker_keeps_the_contract(
    scenario: Scenario, site: Workspace, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    for name in ("messages", "control"):
        (folder / name).mkdir(parents=True)

    await play(scenario, CeleryEngine(str(folder), "-P", "threads", "-c", "7"), site)


async def test_an_outage_of_the_broker_loses_no_run(broker: Broker, site: Workspace) -> None:
    async def broker_fails(harness: ScenarioHarness) -> None:
        names = [f"lost-{number}" for number in range(5)]
        async with harness.server_side():
            await harness.queue(*names)
            await harness.until("all are handed over", lambda: are_handed_over(harness, 5))
            await asyncio.to_thread(broker.stop)
            await harness.queue("meanwhile")
            await harness.until("one cannot be handed over", lambda: has_failed(harness, "meanwhile"))
            await asyncio.to_thread(broker.start)
            async with harness.worker_side():
                await harness.until_completed("meanwhile", *names)
        await harness.check_each_ran_once(["meanwhile", *names])

    await play(broker_fails, engine(broker, "-P", "solo"), site)


async def test_a_forked_process_that_is_killed_loses_its_run_and_nothing_else(
    broker: Broker, site: Workspace
) -> None:
    async def process_dies(harness: ScenarioHarness) -> None:
        harness.hold("victim")
        async with harness.worker_side(), harness.server_side():
            await harness.queue("victim", "other")
            await harness.until_began("victim")
            os.kill(harness.job_events("victim")[0].pid, signal.SIGKILL)
            await harness.until_began("victim", times=2)
            harness.release("victim")
            await harness.until_completed("victim", "other")
            lost, _ = await harness.records("victim")
        assert (lost.state, lost.failure_exception) == (State.FAILED, "WorkerLost")
        await harness.check_each_ran_once(["victim", "other"])

    await play(process_dies, engine(broker, "-c", "2"), site)


async def test_a_task_of_a_dead_worker_is_redelivered_and_changes_nothing(
    rabbit: Rabbit, site: Workspace
) -> None:
    async def worker_dies(harness: ScenarioHarness) -> None:
        harness.hold("victim")
        async with harness.server_side():
            await harness.engine.start(site)
            await harness.queue("victim")
            await harness.until_began("victim")
            (first,) = await harness.records("victim")
            await harness.engine.kill()
            async with harness.worker_side():
                for event in ("received", "succeeded"):
                    said = f"[{first.external_id}-{first.id}] {event}"
                    await harness.until(f"its task is {event} again", lambda said=said: is_logged(site, said))
                harness.release("victim")
                await harness.until_completed("victim")
                lost, _ = await harness.records("victim")
        assert (lost.state, lost.failure_exception) == (State.FAILED, "WorkerLost")
        await harness.check_each_ran_once(["victim"])

    await play(worker_dies, engine(rabbit, "-c", "1", "-l", "info"), site)


async def test_the_highest_priority_starts_first_and_a_cancelled_task_is_discarded(
    broker: Broker, site: Workspace
) -> None:
    async def order_counts(harness: ScenarioHarness) -> None:
        harness.hold("first")
        async with harness.worker_side(), harness.server_side():
            await harness.queue("first")
            await harness.until_began("first")
            for name, priority in {"low": 0, "unwanted": 5, "high": 31, "middle": 16}.items():
                await harness.app.queue("work", name, priority=priority)
            await harness.until("all are handed over", lambda: are_handed_over(harness, 5))
            (unwanted,) = await harness.records("unwanted")
            await harness.app.executions.cancel([unwanted.id])
            harness.release("first")
            await harness.until_completed("first", "low", "middle", "high")
        begun = [line.name for line in harness.job_events() if line.event == "began"]
        assert begun == ["first", "high", "middle", "low"]
        assert await harness.app.workers.list() == []  # the process has taken its leave
        assert await is_logged(site, "Discarding revoked task")

    await play(order_counts, engine(broker, "-c", "1", "-l", "info", "-O", "fair"), site)


async def is_logged(site: Workspace, words: str) -> bool:
    """Whether the far side that was started last has said so."""
    last = max(site.folder.glob("far-*.log"), key=lambda log: int(log.stem.partition("-")[2]))
    return words in last.read_text(encoding="utf-8")
