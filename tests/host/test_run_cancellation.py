"""Runs that are stopped: out of time, cancelled, or in the way of a worker that leaves."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.databases import IN_MEMORY_TOO

from trax import Item, Metadata, RunInterrupted, Trax, current, every
from trax.clock import format_duration
from trax.engine.finish import finish
from trax.errors import StoreUnavailable
from trax.records import QueueStatus, State
from trax.testing import Harness
from trax.worker.dispatcher import dispatch_now
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.engine.job_dispatcher import DispatchResult
    from trax.store.runs.claim import ClaimRequest

pytestmark = IN_MEMORY_TOO

HOUR = timedelta(hours=1)


class Clocked:
    """A worker on the harness's clock."""

    def __init__(self, h: Harness, worker: Worker) -> None:
        self.h = h
        self.app = h.app
        self.worker = worker

    async def begin(self) -> None:
        await self.h.cycle("job_dispatcher")
        assert await self.worker.claim() == 1

    async def ended(self) -> Metadata:
        async with asyncio.timeout(30):
            while not await self.worker.flush():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return (await self.app.executions.list())[0]


@pytest.fixture
async def clocked(url: str) -> AsyncGenerator[Clocked]:
    app = Trax(url, local_worker_count=2, default_job_timeout=timedelta(minutes=20))
    async with Harness(app) as h:
        store = await app.context.store.open()
        worker = await Worker.start(app.context, store, clock=partial(_seconds, h))
        yield Clocked(h, worker)
        await worker.drain(0)
        await worker.unregister()


def _seconds(h: Harness) -> float:
    return h.now.timestamp()


@pytest.mark.parametrize(
    ("given", "allowed"), [(None, timedelta(minutes=20)), (timedelta(seconds=90), timedelta(seconds=90))]
)
async def test_a_job_without_a_manifest_is_stopped_when_its_time_is_over(
    clocked: Clocked, given: timedelta | None, allowed: timedelta
) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    @clocked.app.train(timeout=given)
    async def slow(_number: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cleaned.set()
            raise

    await clocked.app.queue(slow, 1)
    await clocked.begin()
    await started.wait()

    await clocked.h.advance(seconds=allowed.total_seconds() - 1)
    clocked.worker.sweep()
    assert await clocked.worker.flush() == 0
    await clocked.h.advance(seconds=1)
    clocked.worker.sweep()

    record = await clocked.ended()
    assert (record.state, cleaned.is_set()) == (State.CANCELLED, True)
    assert record.failure_reason == f"timed out after {format_duration(allowed)}"
    assert await clocked.app.dead_letters.list() == []


async def test_time_waited_in_the_queue_does_not_count(clocked: Clocked) -> None:
    @clocked.app.train(timeout=timedelta(minutes=1))
    async def quick(number: int) -> int:
        return number

    await clocked.app.queue(quick, 1)
    await clocked.h.cycle("job_dispatcher")
    await clocked.h.advance(hours=5)
    await clocked.worker.send_heartbeat()
    await clocked.begin()
    clocked.worker.sweep()

    assert (await clocked.ended()).state is State.COMPLETED


async def test_synchronous_code_sees_that_it_should_stop(clocked: Clocked) -> None:
    started, seen = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @clocked.app.train(timeout=timedelta(minutes=1))
    def poll(_number: int) -> None:
        run = current()
        assert run
        loop.call_soon_threadsafe(started.set)
        while not run.cancelled:
            threading.Event().wait(0.001)
        seen.set()

    await clocked.app.queue(poll, 1)
    await clocked.begin()
    await started.wait()
    await clocked.h.advance(minutes=1)
    clocked.worker.sweep()

    record = await clocked.ended()
    assert (record.state, record.failure_reason) == (State.CANCELLED, "timed out after 1 min")
    assert seen.is_set()


async def test_a_run_that_swallows_its_cancellation_and_completes_is_completed(clocked: Clocked) -> None:
    started = asyncio.Event()

    @clocked.app.train(timeout=timedelta(minutes=1))
    async def stubborn(number: int) -> int:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return number
        return 0

    await clocked.app.queue(stubborn, 7)
    await clocked.begin()
    await started.wait()
    await clocked.h.advance(minutes=1)
    clocked.worker.sweep()

    record = await clocked.ended()
    assert (record.state, record.output) == (State.COMPLETED, 7)


@pytest.fixture
def app(url: str) -> Trax:
    """An app that would never poll, nor beat, within a test."""
    return Trax(
        url,
        polling_interval=HOUR,
        local_polling_interval=HOUR,
        heartbeat_interval=HOUR,
        worker_lost_after=2 * HOUR,
        shutdown_timeout=timedelta(0),
    )


async def test_cancelling_in_the_same_process_stops_a_waiting_run_at_once(app: Trax) -> None:
    started = asyncio.Event()

    @app.train
    async def slow(_number: int) -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30), app:
        entry = await app.queue(slow, 1)
        await started.wait()
        (record,) = await app.executions.list()

        assert await app.executions.cancel([record.id]) == [record.id]

        assert (await entry.wait()).state is State.CANCELLED


async def test_a_run_that_outlives_the_shutdown_timeout_is_interrupted(app: Trax) -> None:
    started = asyncio.Event()
    ends: list[tuple[State, str | None]] = []

    def listen(record: Metadata) -> None:
        ends.append((record.state, record.failure_exception))

    @app.train(on_cancelled=listen)
    async def slow(_number: int) -> None:
        started.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30), app:
        await app.queue(slow, 1)
        await started.wait()

    assert ends == [(State.CANCELLED, "Interrupted")]


async def test_a_second_less_patient_drain_cuts_the_first_one_short(clocked: Clocked) -> None:
    started = asyncio.Event()

    @clocked.app.train
    async def slow(_number: int) -> None:
        started.set()
        await asyncio.Event().wait()

    await clocked.app.queue(slow, 1)
    await clocked.begin()
    await started.wait()

    async with asyncio.timeout(60):
        patient = asyncio.create_task(clocked.worker.drain(1000))
        await asyncio.sleep(0)
        await clocked.worker.drain(0)
        await patient

    (record,) = await clocked.app.executions.list()
    (entry,) = await clocked.app.work_queue.list()
    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (entry.status, entry.metadata_id) == (QueueStatus.QUEUED, None)
    assert await clocked.worker.claim() == 0


async def test_a_worker_that_stops_gets_nothing_from_the_gate(clocked: Clocked) -> None:
    @clocked.app.train
    async def quick(_number: int) -> None: ...

    store = await clocked.app.context.store.open()
    await clocked.app.queue(quick, 1)
    await clocked.worker.drain(0)

    async def dispatch(request: ClaimRequest) -> DispatchResult:
        return await store.call(dispatch_now, store, clocked.app.context, request)

    dispatched = await clocked.worker.dispatch_and_claim(dispatch)

    assert dispatched.claimed == []
    assert [run.state for run in await clocked.app.executions.list()] == [State.PENDING]


async def test_a_thread_that_does_not_listen_is_put_back_uncounted_and_cannot_write_any_more(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trax.worker.worker.INTERRUPT_SECONDS", 0.0)
    started, go_on, over = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @clocked.app.train
    def deaf(number: int) -> int:
        loop.call_soon_threadsafe(started.set)
        try:
            go_on.wait(60)
            return number
        finally:
            over.set()

    await clocked.app.queue(deaf, 1)
    await clocked.begin()
    await started.wait()
    try:
        async with asyncio.timeout(60):
            await clocked.worker.drain(0)
        (record,) = await clocked.app.executions.list()
        (entry,) = await clocked.app.work_queue.list()
    finally:
        go_on.set()
    await asyncio.to_thread(over.wait, 60)
    await asyncio.sleep(0)

    assert (record.state, record.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (entry.status, entry.metadata_id) == (QueueStatus.QUEUED, None)
    assert await clocked.worker.flush() == 0
    assert (await clocked.app.executions.get(record.id)) == record
    assert "run 1 of train 'deaf' did not stop" in caplog.text


async def test_an_abandoned_thread_cannot_activate_dependents(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trax.worker.worker.INTERRUPT_SECONDS", 0.0)
    app, loop = clocked.app, asyncio.get_running_loop()
    started, go_on, over = asyncio.Event(), threading.Event(), threading.Event()
    raised: list[Exception] = []

    @app.train
    def deaf(_name: str) -> None:
        run = current()
        assert run
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)
        try:
            run.sync.activate("sleeper-1", "late")
        except Exception as error:  # noqa: BLE001 - looked at below
            raised.append(error)
        finally:
            over.set()

    chain = app.schedule(deaf, "parent", "now", every(hours=1))
    chain.include_many(deaf, "sleeper", [Item("1", "declared")], dormant=True)
    await clocked.h.seed()
    await clocked.h.cycle("manifest_manager")
    await clocked.begin()
    await started.wait()
    async with asyncio.timeout(60):
        await clocked.worker.drain(0)

    go_on.set()
    await asyncio.to_thread(over.wait, 60)

    assert [type(error) for error in raised] == [RunInterrupted]
    assert [entry.manifest for entry in await app.work_queue.list()] == ["parent"]


async def test_a_worker_that_leaves_tries_again_to_write_what_has_ended(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    @clocked.app.train
    async def quick(number: int) -> int:
        return number

    answers = iter([StoreUnavailable("away"), StoreUnavailable("away")])

    def unsure(*given: Any, **more: Any) -> Any:
        if (error := next(answers, None)) is not None:
            raise error
        return finish(*given, **more)

    monkeypatch.setattr("trax.worker.worker.finish", unsure)
    monkeypatch.setattr("trax.worker.worker.FLUSH_PAUSES", (0.0, 0.0, 0.0))
    await clocked.app.queue(quick, 7)
    await clocked.begin()

    await clocked.worker.drain(30)

    (record,) = await clocked.app.executions.list()
    assert (record.state, record.output) == (State.COMPLETED, 7)
