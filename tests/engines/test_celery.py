"""Celery's workers keep what every engine has to keep, with a server for a broker and without."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select
from tests.support.celery_engine import CeleryEngine

from trax.records.states import State
from trax.store.schema import tables
from trax.testing.submitter_contract import SCENARIOS, Scenario, Site, Yard, name_of, play
from trax.testing.submitter_contract import scenarios as promises

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.valkey import Valkey

    from trax.store import Connection

WITHOUT_A_SERVER = (promises.a_far_side_that_dies_in_a_run_loses_nothing,)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_a_worker_that_forks_keeps(
    scenario: Scenario, valkey: Valkey, postgres_url: str, tmp_path: Path
) -> None:
    await play(scenario, CeleryEngine(valkey.url, "-c", "7"), Site(postgres_url, tmp_path))


@pytest.mark.parametrize("scenario", WITHOUT_A_SERVER, ids=name_of)
async def test_a_worker_with_threads_and_a_folder_for_a_broker_keeps(
    scenario: Scenario, postgres_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    for name in ("messages", "control"):
        (folder / name).mkdir(parents=True)
    engine = CeleryEngine(str(folder), "-P", "threads", "-c", "7")

    await play(scenario, engine, Site(postgres_url, tmp_path))


async def test_what_a_broker_loses_is_handed_over_again(
    valkey: Valkey, postgres_url: str, tmp_path: Path
) -> None:
    async def broker_fails(yard: Yard) -> None:
        names = [f"lost-{number}" for number in range(5)]
        async with yard.near():
            await yard.queue(*names)
            await yard.until("all are handed over", lambda: are_handed_over(yard, 5))
            await asyncio.to_thread(valkey.stop)
            await yard.queue("meanwhile")
            await yard.until("one cannot be handed over", lambda: has_failed(yard, "meanwhile"))
            await asyncio.to_thread(valkey.start)
            async with yard.far():
                await yard.until_completed("meanwhile", *names)
        await yard.nothing_is_lost_or_doubled(["meanwhile", *names])

    await play(broker_fails, CeleryEngine(valkey.url, "-P", "solo"), Site(postgres_url, tmp_path))


async def test_a_forked_process_that_is_killed_loses_its_run_and_nothing_else(
    valkey: Valkey, postgres_url: str, tmp_path: Path
) -> None:
    async def process_dies(yard: Yard) -> None:
        yard.hold("victim")
        async with yard.far(), yard.near():
            await yard.queue("victim", "other")
            await yard.until_began("victim")
            os.kill(yard.noted("victim")[0].pid, signal.SIGKILL)
            await yard.until_began("victim", times=2)
            yard.release("victim")
            await yard.until_completed("victim", "other")
            lost, _ = await yard.records("victim")
        assert (lost.state, lost.failure_exception) == (State.FAILED, "WorkerLost")
        await yard.nothing_is_lost_or_doubled(["victim", "other"])

    await play(process_dies, CeleryEngine(valkey.url, "-c", "2"), Site(postgres_url, tmp_path))


async def test_the_highest_priority_is_begun_first_and_a_cancelled_task_is_thrown_away(
    valkey: Valkey, postgres_url: str, tmp_path: Path
) -> None:
    async def order_counts(yard: Yard) -> None:
        yard.hold("first")
        async with yard.far(), yard.near():
            await yard.queue("first")
            await yard.until_began("first")
            for name, priority in {"low": 0, "unwanted": 5, "high": 31, "middle": 16}.items():
                await yard.app.queue("work", name, priority=priority)
            await yard.until("all are handed over", lambda: are_handed_over(yard, 5))
            (unwanted,) = await yard.records("unwanted")
            await yard.app.executions.cancel([unwanted.id])
            yard.release("first")
            await yard.until_completed("first", "low", "middle", "high")
        begun = [line.name for line in yard.noted() if line.event == "began"]
        assert begun == ["first", "high", "middle", "low"]
        assert await yard.app.workers.list() == []  # the process has taken its leave
        assert "Discarding revoked task" in (tmp_path / "far-0.log").read_text(encoding="utf-8")

    engine = CeleryEngine(valkey.url, "-c", "1", "-l", "info", "-O", "fair")
    await play(order_counts, engine, Site(postgres_url, tmp_path))


async def are_handed_over(yard: Yard, count: int) -> bool:
    def handed_over(connection: Connection) -> int:
        submitted_at = tables(connection).metadata.c.submitted_at
        return connection.execute(select(func.count(submitted_at))).scalar_one()

    store = await yard.app.parts.store.opened()
    return await store.ask(handed_over) == count


async def has_failed(yard: Yard, name: str) -> bool:
    return any(one.state is State.FAILED for one in await yard.records(name))
