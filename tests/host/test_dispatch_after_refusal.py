"""An entry refused at the gate is admitted as soon as capacity is free, without a poll."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.test_processes_together import NEVER
from tests.support.backends import listening
from tests.support.waiting import until

from trax import Trax
from trax.worker import dispatcher
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Train
    from trax.engine.job_dispatcher import DispatchResult
    from trax.worker.app_context import AppContext


class AppFleet:
    """Apps that know the same train, on one database; each run of it lasts until it is let go."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.began: asyncio.Queue[tuple[Trax, str]] = asyncio.Queue()
        self.holds: dict[str, asyncio.Event] = {}
        self._refusals: asyncio.Queue[AppContext] = asyncio.Queue()
        self._draining = asyncio.Event()

    def app(self, **settings: Any) -> Trax:
        app = Trax(self.url, **{**NEVER, **settings})

        @app.train
        async def note(word: str) -> None:
            self.began.put_nowait((app, word))
            if word in self.holds:
                await self.holds[word].wait()

        return app

    def hold(self, word: str) -> str:
        self.holds[word] = asyncio.Event()
        return word

    def let_go(self, word: str) -> None:
        self.holds[word].set()

    async def refused_by(self, app: Trax) -> None:
        """Wait until a cycle of this app has left somebody in the queue."""
        while await self._refusals.get() is not app.context:
            pass

    async def stop_and_let_go(self, app: Trax, word: str) -> None:
        """Let a run end while its server waits for that in order to stop."""
        stopping = asyncio.create_task(app.stop())
        await self._draining.wait()
        self.let_go(word)
        await stopping

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Notice who refuses somebody, and when a worker drains."""
        home, drain = asyncio.get_running_loop(), Worker.drain
        count_dispatch = dispatcher.count_dispatch

        def count(context: AppContext, began_ns: int, dispatched: DispatchResult) -> None:
            count_dispatch(context, began_ns, dispatched)
            if dispatched.has_waiting_entries:
                home.call_soon_threadsafe(self._refusals.put_nowait, context)

        async def drained(worker: Worker, seconds: float) -> None:
            self._draining.set()
            await drain(worker, seconds)

        patch.setattr(dispatcher, "count_dispatch", count)
        patch.setattr(Worker, "drain", drained)

    @asynccontextmanager
    async def running(self, *apps: tuple[Trax, str], beside: int = 0) -> AsyncGenerator[None]:
        """Start each app in its role, and wait until all of them listen."""
        async with AsyncExitStack() as stack, asyncio.timeout(30):
            for app, role in apps:
                await app.start(role)
                stack.push_async_callback(app.stop)
            await asyncio.to_thread(until, lambda: listening(self.url) == len(apps) + beside)
            yield

    @asynccontextmanager
    async def two_servers(self, **settings: Any) -> AsyncGenerator[tuple[Trax, Trax]]:
        """Both do everything. The one that is named first runs a long job, the other one nothing."""
        servers = [self.app(**settings), self.app(**settings)]
        async with self.running(*((server, "all") for server in servers)):
            await servers[0].queue(note(servers[0]), self.hold("long"))
            busy, _ = await self.began.get()
            yield busy, next(server for server in servers if server is not busy)


def note(app: Trax) -> Train[Any, Any]:
    return app.trains.get("note")


@pytest.fixture
async def fleet(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AppFleet:
    fleet = AppFleet(postgres_url)
    fleet.watch(monkeypatch)
    return fleet


async def test_a_full_group_that_has_flooded_the_queue_is_refilled(url: str) -> None:
    app = Trax(url, local_worker_count=4, max_active_jobs=None, **NEVER)
    app.group("flood", max_active_jobs=2)
    ran, all_ran = list[int](), asyncio.Event()

    @app.train(group="flood")
    async def note(number: int) -> None:
        ran.append(number)
        if len(ran) == 200:
            all_ran.set()

    async with asyncio.timeout(30), app:
        await app.queue_many(note, range(200))
        await all_ran.wait()

    assert sorted(ran) == list(range(200))


async def test_a_place_freed_by_a_server_that_was_full_before_anybody_waited(fleet: AppFleet) -> None:
    async with fleet.two_servers(max_active_jobs=1) as (_, other):
        await other.queue(note(other), "refused")
        await fleet.refused_by(other)
        fleet.let_go("long")
        _, word = await fleet.began.get()

    assert word == "refused"


async def test_a_slot_of_another_server_is_not_left_empty(fleet: AppFleet) -> None:
    async with fleet.two_servers(local_worker_count=1) as (busy, other):
        await busy.queue(note(busy), "next")
        began = await fleet.began.get()
        fleet.let_go("long")

    assert began == (other, "next")


async def test_a_place_freed_by_a_server_that_stops(fleet: AppFleet) -> None:
    async with fleet.two_servers(max_active_jobs=1) as (stopping, other):
        await other.queue(note(other), "refused")
        await fleet.refused_by(other)
        await fleet.stop_and_let_go(stopping, "long")
        began = await fleet.began.get()

    assert began == (other, "refused")


async def test_a_place_freed_by_a_worker_that_stops(fleet: AppFleet) -> None:
    scheduler, stopping, other = (fleet.app(max_active_jobs=1) for _ in range(3))

    async with fleet.running((scheduler, "scheduler"), (stopping, "worker")):
        await scheduler.queue(note(scheduler), fleet.hold("long"))
        await fleet.began.get()
        async with fleet.running((other, "worker"), beside=2):
            await scheduler.queue(note(scheduler), "refused")
            await fleet.refused_by(scheduler)
            await fleet.stop_and_let_go(stopping, "long")
            began = await fleet.began.get()

    assert began == (other, "refused")


async def test_a_run_released_by_a_stopping_server_is_claimed_by_another(fleet: AppFleet) -> None:
    async with fleet.two_servers(shutdown_timeout=0) as (stopping, other):
        await stopping.stop()
        began = await fleet.began.get()
        fleet.let_go("long")

    assert began == (other, "long")
