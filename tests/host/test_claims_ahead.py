"""Runs that a worker has claimed ahead, while all of its slots are in use."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import pytest

from trax import Metadata, Trax
from trax.records import State
from trax.testing import Harness
from trax.worker import pool as pool_module
from trax.worker.dispatcher import dispatch_now
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.engine.job_dispatcher import DispatchResult
    from trax.store.runs.claim import ClaimRequest


class Desk:
    """A worker with one slot that claims two jobs ahead, and a train whose jobs end when told."""

    worker: Worker

    def __init__(self, url: str) -> None:
        self.app = Trax(url, max_active_jobs=10)
        self.h = Harness(self.app)
        self.began: list[str] = []
        self.gate = asyncio.Event()

        @self.app.train
        async def sign(letter: str) -> None:
            self.began.append(letter)
            await self.gate.wait()

        self.sign = sign

    async def open(self) -> None:
        store = self.app.context.store.open_blocking()
        self.worker = await Worker.start(self.app.context, store, 1, dispatches=True)

    async def visit(self, ahead: int = 2) -> DispatchResult:
        """Visit the gate as a server with this worker does."""
        store, context = self.app.context.store.open_blocking(), self.app.context
        self.worker._pool.prefetch = ahead  # pyright: ignore[reportPrivateUsage]

        async def dispatch(request: ClaimRequest) -> DispatchResult:
            return await store.call(dispatch_now, store, context, request)

        return await self.worker.dispatch_and_claim(dispatch)

    async def runs(self) -> dict[str, Metadata]:
        """The last run of each letter."""
        return {str(run.input): run for run in reversed(await self.app.executions.list())}

    async def begins(self, *letters: str) -> None:
        async with asyncio.timeout(60):
            while self.began != [*letters]:  # noqa: ASYNC110 - a slot begins a job in the next iterations
                await asyncio.sleep(0)


@pytest.fixture
async def desk(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Desk]:
    monkeypatch.setattr(pool_module, "MAX_WAIT_SECONDS", 600.0)  # however slow this machine is
    desk = Desk(url)
    async with asyncio.timeout(60), desk.h:
        await desk.open()
        yield desk
        desk.gate.set()
        await desk.worker.drain(30)
        await desk.worker.unregister()


@pytest.fixture
async def full_desk(desk: Desk) -> Desk:
    """One letter is being signed; two more are claimed and wait."""
    for letter in ("one", "two", "three"):
        await desk.app.queue(desk.sign, letter)
    assert len((await desk.visit()).claimed) == 3
    await desk.begins("one")
    return desk


async def test_a_run_that_is_cancelled_while_it_waits_never_begins(full_desk: Desk) -> None:
    waiting = (await full_desk.runs())["two"]
    await full_desk.app.executions.cancel([waiting.id])

    await full_desk.worker.send_heartbeat()
    full_desk.gate.set()
    await full_desk.begins("one", "three")
    await full_desk.worker.drain(30)

    cancelled = (await full_desk.runs())["two"]
    assert (cancelled.state, cancelled.started_at) == (State.CANCELLED, None)
    assert full_desk.began == ["one", "three"]


async def test_a_run_that_waits_has_not_started_and_cannot_time_out(full_desk: Desk) -> None:
    runs = await full_desk.runs()
    assert runs["one"].started_at is not None
    assert (runs["two"].state, runs["two"].started_at) == (State.IN_PROGRESS, None)

    await full_desk.h.advance(hours=9)
    await full_desk.worker.send_heartbeat()
    await full_desk.h.cycle("manifest_manager")

    runs = await full_desk.runs()
    assert (runs["one"].cancel_requested, runs["two"].cancel_requested) == (True, False)


async def test_runs_for_which_no_slot_becomes_free_go_back_to_the_queue(
    full_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT_SECONDS", 0.0)
    full_desk.worker._pool._check_backlog()  # pyright: ignore[reportPrivateUsage]
    await full_desk.worker.flush()

    runs = await full_desk.runs()
    assert [runs[letter].failure_exception for letter in ("two", "three")] == ["Interrupted", "Interrupted"]
    assert "no slot became free" in str(runs["two"].failure_reason)
    assert [entry.status for entry in await full_desk.app.work_queue.list(status="queued")] == ["queued"] * 2

    elsewhere = await full_desk.h.work()
    assert (await full_desk.app.dead_letters.list(), elsewhere) == ([], 0)


async def test_a_run_whose_time_limit_is_over_before_it_begins_goes_back_uncounted(desk: Desk) -> None:
    pool = desk.worker._pool  # pyright: ignore[reportPrivateUsage]
    pool.resize(2)
    for letter in ("one", "two"):
        await desk.app.queue(desk.sign, letter)
    assert len((await desk.visit(ahead=0)).claimed) == 2
    pool.resize(1)
    await desk.begins("one")

    await desk.h.advance(hours=9)
    await desk.worker.send_heartbeat()
    await desk.h.cycle("manifest_manager")
    await desk.worker.send_heartbeat()
    await desk.worker.drain(30)

    runs = await desk.runs()
    assert (runs["one"].failure_exception, runs["two"].failure_exception) == ("RunTimedOut", "Interrupted")
    assert "before it began" in str(runs["two"].failure_reason)
    queued = {str(entry.input): entry.status for entry in await desk.app.work_queue.list(status="queued")}
    assert queued["two"] == "queued"


async def test_a_job_for_a_process_of_its_own_is_claimed_only_if_one_is_free(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_names = frozenset({desk.sign.name})
    monkeypatch.setattr(type(desk.app.trains), "cpu_names", property(lambda _: cpu_names))
    desk.worker._pool.resize(3)  # pyright: ignore[reportPrivateUsage]
    for letter in ("one", "two"):
        await desk.app.queue(desk.sign, letter)

    claimed = [len((await desk.visit()).claimed) for _ in range(2)]

    assert claimed == [1, 0], "the worker has one process"


async def test_jobs_that_never_wait_share_one_task(url: str) -> None:
    """A task for each job would cost more than the job."""
    app = Trax(url, max_active_jobs=None)
    tasks: list[weakref.ref[asyncio.Task[None]]] = []

    @app.train
    async def note(_number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))

    async with asyncio.timeout(60), app:
        entries = await app.queue_many(note, range(40))
        for entry in entries:
            await entry.wait(timeout=60)

    assert len(tasks) == 40
    assert len({id(reference) for reference in tasks}) < 5, "a task has one weak reference"


async def test_an_urgent_job_begins_before_those_that_were_claimed_ahead(full_desk: Desk) -> None:
    await full_desk.app.queue(full_desk.sign, "urgent", priority=31)

    await full_desk.visit(ahead=3)
    full_desk.gate.set()

    await full_desk.begins("one", "urgent", "two", "three")


async def test_runs_claimed_ahead_by_a_lost_worker_run_elsewhere_once(
    full_desk: Desk,
) -> None:
    await full_desk.h.advance(minutes=5)
    await full_desk.h.cycle("manifest_manager")

    runs = await full_desk.runs()
    assert {letter: run.failure_exception for letter, run in runs.items()} == {
        "one": "WorkerLost",
        "two": "Interrupted",
        "three": "Interrupted",
    }
    full_desk.began.clear()
    await full_desk.worker.send_heartbeat()
    assert full_desk.worker.load.prefetched == 0, "it gives back what it had not begun"
    full_desk.gate.set()
    await full_desk.h.run_until_idle()
    assert sorted(full_desk.began) == ["three", "two"]
