"""Several processes on one PostgreSQL that notify each other; none polls within a test."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support import listing
from tests.support.backends import cut_off, listening
from tests.support.waiting import until

from trax import Trax, every
from trax.records import State
from trax.store import workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from trax.store import Connection

HOUR = timedelta(hours=1)
NEVER: dict[str, Any] = {
    "polling_interval": HOUR,
    "local_polling_interval": HOUR,
    "heartbeat_interval": HOUR,
    "worker_lost_after": 2 * HOUR,
}


class AppFleet:
    """Apps that know the same trains, on one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ran: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.hold = asyncio.Event()
        self.hold.set()

    def app(self, name: str, **settings: Any) -> Trax:
        app = Trax(self.url, **{**NEVER, **settings})

        @app.train
        async def note(word: str) -> None:
            self.ran.put_nowait((name, word))
            await self.hold.wait()

        return app

    async def heard(self, count: int) -> list[tuple[str, str]]:
        return [await self.ran.get() for _ in range(count)]


@asynccontextmanager
async def started(url: str, **apps: Trax) -> AsyncGenerator[None]:
    """Start each app in the role it is named for, and wait until all of them listen."""
    async with AsyncExitStack() as stack, asyncio.timeout(60):
        for role, app in apps.items():
            await app.start(role)
            stack.push_async_callback(app.stop)
        await asyncio.to_thread(until, lambda: listening(url) == len(apps))
        yield


@pytest.fixture
def fleet(postgres_url: str) -> AppFleet:
    return AppFleet(postgres_url)


async def test_a_scheduler_wakes_workers_elsewhere_and_runs_nothing_itself(fleet: AppFleet) -> None:
    scheduler, worker, client = fleet.app("scheduler"), fleet.app("worker"), fleet.app("client")

    async with started(fleet.url, scheduler=scheduler, worker=worker):
        await client.queue(client.trains.get("note"), "hello")
        ran = await fleet.heard(1)

    client.close()
    assert ran == [("worker", "hello")]


async def test_a_worker_that_frees_a_slot_wakes_the_refused_elsewhere(fleet: AppFleet) -> None:
    scheduler, worker, client = (
        fleet.app(name, max_active_jobs=1) for name in ("scheduler", "worker", "client")
    )

    async with started(fleet.url, scheduler=scheduler, worker=worker):
        await client.queue_many(client.trains.get("note"), ["one", "two", "three"])
        ran = await fleet.heard(3)

    client.close()
    assert ran == [("worker", "one"), ("worker", "two"), ("worker", "three")]


async def test_a_worker_that_ends_a_run_wakes_the_manager_elsewhere(fleet: AppFleet) -> None:
    scheduler, worker = fleet.app("scheduler"), fleet.app("worker")
    note = scheduler.trains.get("note")
    scheduler.schedule(note, "first", "first", every(hours=1)).then_include(note, "second", "second")

    async with started(fleet.url, scheduler=scheduler, worker=worker):
        ran = await fleet.heard(2)

    assert ran == [("worker", "first"), ("worker", "second")]


async def test_a_change_by_an_operator_elsewhere_applies_at_once(fleet: AppFleet) -> None:
    server, client = fleet.app("server", job_dispatcher_enabled=False), fleet.app("client")
    server.schedule(server.trains.get("note"), "asleep", "asleep", every(hours=1), enabled=False)

    async with started(fleet.url, all=server):
        await client.manifests.enable("asleep")
        await client.settings.update(job_dispatcher_enabled=True)
        ran = await fleet.heard(1)

    client.close()
    assert ran == [("server", "asleep")]


async def test_a_run_is_cancelled_from_another_process_at_once(fleet: AppFleet) -> None:
    server, client = fleet.app("server"), fleet.app("client")
    fleet.hold.clear()
    server.schedule(server.trains.get("note"), "long", "long", every(hours=1))

    async with started(fleet.url, all=server):
        await fleet.heard(1)
        await client.manifests.cancel("long")
        store = await client.context.store.open()
        await asyncio.to_thread(until, lambda: bool(store.read(listing.runs, state=State.CANCELLED)))

    client.close()


async def test_a_worker_seeds_nothing_and_prunes_nothing(fleet: AppFleet) -> None:
    scheduler, worker = fleet.app("scheduler"), fleet.app("worker")
    note = scheduler.trains.get("note")
    scheduler.schedule(note, "of-the-scheduler", "x", every(hours=1), enabled=False)
    worker.schedule(worker.trains.get("note"), "of-the-worker", "x", every(hours=1))

    async with started(fleet.url, scheduler=scheduler, worker=worker):
        found = await worker.manifests.list()

    assert [manifest.external_id for manifest in found] == ["of-the-scheduler"]


async def test_every_loop_continues_after_the_connections_are_cut(
    fleet: AppFleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    quick = timedelta(seconds=0.1)
    server = fleet.app(
        "server",
        polling_interval=quick,
        local_polling_interval=quick,
        heartbeat_interval=quick,
        worker_lost_after=HOUR,
    )
    client = fleet.app("client", notifications=False)
    note = client.trains.get("note")

    def loops(words: str) -> set[str]:
        said = (record.getMessage() for record in caplog.records)
        return {message.partition(":")[0] for message in said if words in message}

    async with started(fleet.url, all=server):
        await client.queue(note, "before")
        await fleet.heard(1)
        while not loops("a turn failed"):
            await asyncio.to_thread(cut_off, fleet.url)
        await asyncio.to_thread(until, lambda: loops("recovered") == loops("a turn failed"))
        client.close()
        await client.queue(note, "after")
        ran = await fleet.heard(1)
        await asyncio.to_thread(until, lambda: listening(fleet.url) == 1)
        before = server.context.store.open_blocking().read(_heartbeats)
        await asyncio.to_thread(
            until, lambda: server.context.store.open_blocking().read(_heartbeats) > before
        )

    client.close()
    assert ran == [("server", "after")]


async def test_without_notifications_only_the_poll_finds_what_others_did(fleet: AppFleet) -> None:
    server = fleet.app("server", notifications=False, polling_interval=timedelta(seconds=0.1))
    client = fleet.app("client", notifications=False)

    async with asyncio.timeout(60), server:
        await client.queue(client.trains.get("note"), "found")
        ran = await fleet.heard(1)
        assert listening(fleet.url) == 0

    client.close()
    assert ran == [("server", "found")]


async def test_listening_may_have_an_address_of_its_own(fleet: AppFleet) -> None:
    elsewhere = fleet.url.replace("127.0.0.1", "localhost")
    server = Trax(fleet.url, listen_url=f"{elsewhere}?application_name=my%20ears")

    async with asyncio.timeout(60), server:
        await asyncio.to_thread(until, lambda: _named(fleet.url, "my ears") == 1)


def _heartbeats(connection: Connection) -> list[datetime]:
    return [worker.heartbeat_at for worker in workers.load_list(connection)]


def _named(url: str, name: str) -> int:
    with psycopg.connect(url) as connection:
        question = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        found = connection.execute(question, [name]).fetchone()
    assert found
    return found[0]
