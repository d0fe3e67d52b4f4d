"""A worker without a heartbeat: its runs are reassigned, and it registers again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from trax import Metadata, Retry, Trax, every
from trax.records import State
from trax.store import workers
from trax.testing import Harness
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class LostWorkerSetup:
    """One worker on the harness's clock, and a train that waits until it is let on."""

    def __init__(self, h: Harness, worker: Worker) -> None:
        self.h = h
        self.worker = worker
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ran: list[str] = []

    async def work(self, name: str) -> str:
        self.ran.append(name)
        self.started.set()
        await self.go_on.wait()
        return name

    async def begin(self) -> None:
        """Let what is queued through the gate, and start it."""
        await self.h.cycle("job_dispatcher")
        assert await self.worker.claim() == 1
        await self.started.wait()

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.h.app.executions.list()))

    async def workers(self) -> list[int]:
        store = await self.h.app.context.store.open()
        return [each.id for each in await store.ask(workers.load_list)]


@pytest.fixture
async def setup(url: str) -> AsyncGenerator[LostWorkerSetup]:
    app = Trax(url, local_worker_count=2)

    async def work(name: str) -> str:
        return await yards[0].work(name)

    app.train(retry=Retry(max_retries=2, delay=timedelta(0)), timeout=timedelta(days=9))(work)
    async with Harness(app) as h:
        store = await app.context.store.open()
        worker = await Worker.start(app.context, store, clock=partial(_seconds, h))
        yards = [LostWorkerSetup(h, worker)]
        yield yards[0]
        await worker.drain(0)
        await worker.unregister()


async def test_a_silent_worker_loses_its_runs_and_continues_as_a_new_one(
    setup: LostWorkerSetup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.h.app.queue(setup.h.app.trains.get("work"), "Ada")
    await setup.begin()
    old = setup.worker.id

    await setup.h.advance(seconds=21)
    await setup.h.cycle("manifest_manager")
    (record,) = await setup.records()
    assert (record.state, record.failure_exception) == (State.FAILED, "WorkerLost")
    assert await setup.workers() == []

    await setup.worker.send_heartbeat()
    async with asyncio.timeout(30):
        assert await _written(setup.worker) == 0
    assert setup.worker.id > old
    assert await setup.workers() == [setup.worker.id]
    assert f"worker {old} missed its heartbeat" in caplog.text

    setup.go_on.set()
    await setup.begin()
    async with asyncio.timeout(30):
        assert await _written(setup.worker) == 1
    lost, again = await setup.records()
    assert (lost.state, lost.worker) == (State.FAILED, old)
    assert (again.state, again.worker, again.attempt) == (State.COMPLETED, setup.worker.id, 2)


async def test_a_result_that_comes_too_late_is_refused_and_logged(
    setup: LostWorkerSetup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.h.app.queue(setup.h.app.trains.get("work"), "Ada")
    await setup.begin()
    await setup.h.advance(seconds=21)
    await setup.h.cycle("manifest_manager")

    setup.go_on.set()
    async with asyncio.timeout(30):
        assert await _written(setup.worker) == 0

    (record,) = await setup.records()
    assert (record.state, record.output) == (State.FAILED, None)
    assert "its result (completed) arrived too late" in caplog.text


async def test_the_manifest_of_a_lost_run_is_retried_by_its_policy(url: str) -> None:
    app = Trax(url, local_worker_count=2)
    started = asyncio.Event()

    @app.train
    async def work(_name: str) -> None:
        started.set()
        await asyncio.Event().wait()

    app.schedule(work, "daily", "Ada", every(days=1), retry=Retry(max_retries=3, delay=timedelta(minutes=5)))
    async with Harness(app) as h:
        worker = await Worker.start(app.context, await app.context.store.open())
        await h.cycle("manifest_manager")
        await h.cycle("job_dispatcher")
        await worker.claim()
        await started.wait()

        await h.advance(seconds=21)
        await h.cycle("manifest_manager")
        assert (await app.manifests.get("daily")).failure_count == 1

        (entry,) = await app.work_queue.list(status="queued")
        assert (entry.manifest, entry.scheduled_at) == ("daily", h.now + timedelta(minutes=5))
        await worker.drain(0)
        await worker.unregister()


async def test_a_worker_with_a_heartbeat_keeps_its_run_of_any_length(setup: LostWorkerSetup) -> None:
    await setup.h.app.queue(setup.h.app.trains.get("work"), "Ada")
    await setup.begin()

    for _ in range(3):
        await setup.h.advance(days=1)
        await setup.worker.send_heartbeat()
        await setup.h.cycle("manifest_manager")
    setup.go_on.set()
    async with asyncio.timeout(30):
        assert await _written(setup.worker) == 1

    (record,) = await setup.records()
    assert record.state is State.COMPLETED


async def test_a_worker_without_a_recent_heartbeat_claims_no_runs_until_the_next(
    setup: LostWorkerSetup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.h.app.queue(setup.h.app.trains.get("work"), "Ada")
    await setup.h.cycle("job_dispatcher")
    await setup.h.advance(seconds=21)

    assert await setup.worker.claim() == 0
    assert await setup.worker.claim() == 0
    assert caplog.text.count("could not send its heartbeat") == 1

    await setup.worker.send_heartbeat()
    assert await setup.worker.claim() == 1


def _seconds(h: Harness) -> float:
    return h.now.timestamp()


async def _written(worker: Worker) -> int:
    """How many endings were written, once there is nothing left to write."""
    await worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
    return await worker.flush()
