"""The row of a process with direct runs, renewed from a thread and a connection of its own."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import until

from trax import Metadata, Trax
from trax.records import State
from trax.records.worker import HeartbeatStreak
from trax.store import inspect, workers
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from trax.store import Store


class Office:
    """An app that runs trains with `app.run`, on the harness's clock."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        self.app = h.app
        self.go_on = asyncio.Event()
        self.started = asyncio.Event()

        @self.app.train
        async def wait(number: int) -> int:
            self.started.set()
            await self.go_on.wait()
            return number

        self.wait = wait

    async def begin(self, number: int = 7) -> asyncio.Task[int]:
        task = asyncio.create_task(self.app.run(self.wait, number))
        await self.started.wait()
        return task

    async def record(self) -> Metadata:
        (record,) = await self.app.executions.list()
        return record

    @property
    async def store(self) -> Store:
        return await self.app.context.store.open()


@pytest.fixture
async def office(url: str) -> AsyncGenerator[Office]:
    async with Harness(Trax(url, max_active_jobs=1)) as h:
        office = Office(h)
        yield office
        office.go_on.set()  # for the run of a test that failed


async def test_a_direct_run_belongs_to_a_row_that_is_no_worker(office: Office) -> None:
    run = await office.begin()
    row_id = office.app.context.heartbeat.caller_id
    office.go_on.set()
    await run

    assert (await office.record()).worker == row_id
    assert await (await office.store).ask(workers.load_list) == []


async def test_a_long_direct_run_is_not_considered_lost(office: Office) -> None:
    run = await office.begin()

    for _ in range(5):
        await office.h.advance(hours=1)
        await office.h.cycle("manifest_manager")
    office.go_on.set()

    assert await run == 7
    assert (await office.record()).state is State.COMPLETED


async def test_the_capacity_of_a_dead_process_is_freed_when_its_silence_is_noticed(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    run, store, presence = await office.begin(), await office.store, office.app.context.heartbeat
    assert presence.caller_id
    presence.remove(presence.caller_id)  # its process beats no more

    await office.h.advance(seconds=19)
    await office.h.cycle("manifest_manager")
    assert sum((await store.ask(inspect.count_active_runs)).values()) == 1
    await office.h.advance(seconds=2)
    await office.h.cycle("manifest_manager")

    record = await office.record()
    assert (record.state, record.failure_exception) == (State.FAILED, "WorkerLost")
    assert await store.ask(inspect.count_active_runs) == {}
    office.go_on.set()
    assert await run == 7
    assert await office.record() == record
    assert "its result (completed) arrived too late" in caplog.text


@pytest.mark.parametrize("case", ["it has never beaten", "it beats again since now", "it beats no more"])
async def test_a_silence_shared_by_the_observer_does_not_count_as_a_loss(office: Office, case: str) -> None:
    run, presence = await office.begin(), office.app.context.heartbeat
    assert presence.caller_id
    presence.remove(presence.caller_id)

    await office.h.advance(minutes=1)
    now = office.h.now
    watches = {
        "it has never beaten": HeartbeatStreak.empty(),
        "it beats again since now": HeartbeatStreak(now, now),
        "it beats no more": HeartbeatStreak(now - timedelta(days=1), now - timedelta(minutes=1)),
    }
    office.h.watch = watches[case]
    await office.h.cycle("manifest_manager")
    await office.h.seed()

    assert (await office.record()).state is State.IN_PROGRESS
    office.h.watch = HeartbeatStreak(office.h.now - timedelta(seconds=20), office.h.now)
    await office.h.cycle("manifest_manager")
    assert (await office.record()).state is State.FAILED
    office.go_on.set()
    await run


async def test_a_train_that_blocks_the_event_loop_does_not_silence_its_worker(url: str) -> None:
    app = Trax(url, heartbeat_interval=0.1, worker_lost_after=60, local_worker_count=1)
    seen: list[datetime] = []
    store: Store | None = None

    def has_beaten_twice() -> bool:
        assert store
        (worker,) = store.read(workers.load_list)
        if worker.heartbeat_at not in seen:
            seen.append(worker.heartbeat_at)
        return len(seen) > 2

    @app.train
    async def block(_number: int) -> None:
        looking = threading.Thread(target=until, args=(has_beaten_twice,))
        looking.start()
        looking.join(60)  # the loop stands still meanwhile

    async with asyncio.timeout(60), app:
        store = await app.context.store.open()
        run = await (await app.queue(block, 1)).wait()

    assert (run.state, len(seen)) == (State.COMPLETED, 3)


async def test_a_closed_app_removes_its_rows(office: Office, url: str) -> None:
    if url == "memory://":
        return
    other = Trax(url)
    other.trains.add(office.wait)
    office.go_on.set()
    await other.run(office.wait, 1)
    assert other.context.heartbeat.caller_id

    other.close()

    assert await (await office.store).ask(workers.record_heartbeats, {1, 2, 3}, now=office.h.now) == set()
