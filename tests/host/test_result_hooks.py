"""Hooks and spans of a run wait until its result is written, and are kept no longer."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.results import refuse_results

from trax import Metadata, Retry, Trax
from trax.errors import StoreUnavailable
from trax.records import State
from trax.testing import Harness
from trax.worker import worker as worker_module
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.records.result import RunResult


class Depot:
    """A worker that does nothing by itself, and what the hooks of the app were told."""

    def __init__(self, h: Harness, worker: Worker) -> None:
        self.h = h
        self.app = h.app
        self.worker = worker
        self.heard: list[str] = []
        self.app.on_state_changed(self._hear)

    @property
    def waiting(self) -> int:
        """The number of runs with something that follows their result."""
        return len(self.worker._follow_ups)  # pyright: ignore[reportPrivateUsage]

    async def claim(self, train: Any) -> None:
        await self.app.queue(train, 1)
        await self.h.cycle("job_dispatcher")
        assert await self.worker.claim() == 1

    async def end(self, train: Any) -> None:
        """Run it, and write nothing."""
        await self.claim(train)
        async with asyncio.timeout(30):
            await self.worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]

    async def flush(self) -> int:
        try:
            return await self.worker.flush()
        finally:
            await self.worker._results.wait_for_hooks()  # pyright: ignore[reportPrivateUsage]

    async def record(self) -> Metadata:
        (record,) = await self.app.executions.list(train="work")
        return record

    def _hear(self, record: Metadata) -> None:
        if record.state is not State.IN_PROGRESS:
            self.heard.append(record.state)


@pytest.fixture
async def depot() -> AsyncGenerator[Depot]:
    app = Trax("memory://")

    @app.train(retry=Retry(max_retries=1))
    async def work(number: int) -> int:
        return number

    async with Harness(app) as h:
        worker = await Worker.start(app.context, await app.context.store.open(), 2)
        yield Depot(h, worker)
        await worker.drain(0)
        await worker.unregister()


async def test_a_hook_waits_until_the_result_is_written_and_is_called_once(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await depot.end("work")
    with monkeypatch.context() as patch:
        refuse_results(patch, lambda _: StoreUnavailable("away"))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await depot.flush()
    assert (depot.heard, depot.waiting) == ([], 1)

    assert await depot.flush() == 1
    assert (depot.heard, depot.waiting) == ([State.COMPLETED], 0)


async def test_a_run_without_hook_and_span_has_nothing_to_wait_for(url: str) -> None:
    app = Trax(url)

    @app.train
    async def work(number: int) -> int:
        return number

    async with Harness(app) as h:
        worker = await Worker.start(app.context, await app.context.store.open(), 2)
        await app.queue(work, 1)
        await h.cycle("job_dispatcher")
        await worker.claim()
        await worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]

        assert len(worker._follow_ups) == 0  # pyright: ignore[reportPrivateUsage]
        assert await worker.flush() == 1
        await worker.unregister()


async def test_a_result_that_comes_too_late_is_logged_and_its_hook_is_dropped(
    depot: Depot, caplog: pytest.LogCaptureFixture
) -> None:
    await depot.end("work")
    await depot.h.advance(minutes=1)
    await depot.h.cycle("manifest_manager")
    assert depot.waiting == 1

    assert await depot.flush() == 0

    record = await depot.record()
    (line,) = [each for each in caplog.records if "arrived too late" in each.getMessage()]
    assert (line.levelno, line.__dict__["train"], line.__dict__["metadata_id"], line.__dict__["attempt"]) == (
        logging.WARNING,
        "work",
        record.id,
        1,
    )
    assert (record.failure_exception, depot.heard, depot.waiting) == ("WorkerLost", [], 0)


async def test_hooks_are_not_called_for_a_result_recorded_as_a_failure(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_completed(result: RunResult) -> Exception | None:
        return ValueError("no such value") if result.state is State.COMPLETED else None

    refuse_results(monkeypatch, is_completed)
    await depot.end("work")

    assert await depot.flush() == 1

    record = await depot.record()
    assert (record.state, record.output) == (State.FAILED, None)
    assert record.failure_reason == "the result (completed) could not be stored: no such value"
    assert (depot.heard, depot.waiting) == ([], 0)


async def test_a_result_whose_failure_could_not_be_written_either_is_retried_unchanged(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(result: RunResult) -> Exception:
        return ValueError("no") if result.state is State.COMPLETED else StoreUnavailable("away")

    await depot.end("work")
    with monkeypatch.context() as patch:
        refuse_results(patch, fail)
        with pytest.raises(StoreUnavailable):
            await depot.flush()

    assert await depot.flush() == 1
    record = await depot.record()
    assert (record.state, record.output) == (State.COMPLETED, 1)
    assert (depot.heard, depot.waiting) == ([State.COMPLETED], 0)


async def test_a_result_that_the_database_rejects_altogether_waits_with_its_hook(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await depot.end("work")
    with monkeypatch.context() as patch:
        refuse_results(patch, lambda _: ValueError("no"))
        assert await depot.flush() == 0

    assert (depot.heard, depot.waiting) == ([], 1)


async def test_nothing_is_kept_for_a_run_that_was_abandoned(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "INTERRUPT_SECONDS", 0.0)
    started, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    @depot.app.train
    def deaf(_number: int) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)

    await depot.worker.send_heartbeat()
    await depot.claim(deaf)
    await started.wait()
    (run,) = depot.worker._pool.runs  # pyright: ignore[reportPrivateUsage]
    assert run.task is not None
    try:
        async with asyncio.timeout(60):
            await depot.worker.drain(0)
            await run.task
    finally:
        go_on.set()

    (record,) = await depot.app.executions.list(train="deaf")
    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (depot.heard, depot.waiting) == ([], 0)
