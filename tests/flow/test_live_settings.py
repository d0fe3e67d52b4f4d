"""Edited settings, as running servers apply them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.support import listing
from tests.support.manager_harness import ManagerHarness
from tests.support.waiting import until

from trax import Trax, every
from trax.records import State
from trax.store import workers
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHARED = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
async def servers(url: str) -> AsyncGenerator[list[ManagerHarness]]:
    """Two servers on one database."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ManagerHarness(url, TEN, max_active_jobs=5)) for _ in range(2)]


async def dispatched(h: ManagerHarness) -> int:
    return len((await h.cycle("job_dispatcher")).metadata_ids)


async def test_entries_accumulate_while_the_dispatcher_is_off(url: str) -> None:
    async with ManagerHarness(url, TEN) as h:
        await h.app.settings.update(job_dispatcher_enabled=False)
        await h.app.queue_many(h.job, ["a", "b"])

        assert await dispatched(h) == 0
        await h.run_until_idle()
        assert len(h.queued()) == 2

        await h.app.settings.update(job_dispatcher_enabled=True)
        assert await dispatched(h) == 2


async def test_a_manager_that_is_off_queues_nothing(url: str) -> None:
    h = ManagerHarness(url, TEN, manifest_manager_enabled=False)
    h.schedule(h.job, "sync", "sync", every(minutes=5))
    async with h:
        await h.run_until_idle()
        assert h.ran == []

        await h.app.settings.update(manifest_manager_enabled=True)
        await h.run_until_idle()
        assert h.ran == ["sync"]


@SHARED
async def test_a_new_limit_counts_in_the_next_cycle_of_every_server(servers: list[ManagerHarness]) -> None:
    one, other = servers
    await one.app.queue_many(one.job, [str(number) for number in range(60)])
    assert await dispatched(other) == 5

    await one.app.settings.update(max_active_jobs=50)

    assert await dispatched(other) == 45
    assert await dispatched(one) == 0


@SHARED
async def test_a_new_limit_survives_a_restart(servers: list[ManagerHarness], url: str) -> None:
    one, _ = servers
    await one.app.settings.update(max_active_jobs=7)

    async with ManagerHarness(url, TEN, max_active_jobs=5) as restarted:
        await restarted.app.queue_many(restarted.job, [str(number) for number in range(9)])

        assert await dispatched(restarted) == 7


@SHARED
async def test_a_heartbeat_brings_an_edit_to_a_process_that_only_works(servers: list[ManagerHarness]) -> None:
    one, worker = servers
    seen: list[bool] = []

    async def look() -> None:
        await one.app.settings.update(save_outputs=False)
        seen.append(worker.app.context.settings.save_outputs)
        await worker.cycle("manifest_manager")  # beats for the workers first
        seen.append(worker.app.context.settings.save_outputs)

    worker.during["job"] = look
    await worker.app.queue(worker.job, "job")
    await worker.run_until_idle()

    assert seen == [True, False]
    (run,) = await one.app.executions.list(state="completed")
    assert run.output is None


@SHARED
async def test_seeding_uses_the_current_default_of_settings(servers: list[ManagerHarness]) -> None:
    one, other = servers
    await one.app.settings.update(default_max_retries=9)

    other.schedule(other.job, "sync", "sync", every(minutes=5))
    await other.seed()

    assert (await other.manifest("sync")).max_retries == 9


async def test_a_running_server_applies_a_changed_setting_at_once(url: str) -> None:
    app = Trax(url, polling_interval=HOUR, local_polling_interval=HOUR, job_dispatcher_enabled=False)
    done = asyncio.Event()

    @app.train
    async def greet(_name: str) -> None:
        done.set()

    async with asyncio.timeout(30), app:
        entry = await app.queue(greet, "Ada")
        await app.settings.update(polling_interval=timedelta(hours=2))
        assert await app.executions.list() == []

        await app.settings.update(job_dispatcher_enabled=True)

        await done.wait()
        assert entry.train == "greet"


async def test_the_records_of_a_cleaned_train_go_while_the_server_runs(url: str) -> None:
    app = Trax(url, polling_interval=HOUR, metadata_cleanup_retention=timedelta(microseconds=1))

    @app.train
    async def greet(name: str) -> str:
        return name

    async with asyncio.timeout(30), app:
        await app.run(greet, "Ada")
        await app.settings.update(metadata_cleanup_enabled=True, metadata_cleanup_trains=["greet"])
        store = await app.context.store.open()
        await asyncio.to_thread(until, lambda: not store.read(listing.runs))


async def test_an_excluded_train_does_not_count_against_the_limit(url: str) -> None:
    h = ManagerHarness(url, TEN, max_active_jobs=1)

    @h.app.train(exclude_from_max_active_jobs=True)
    async def aside(value: str) -> str:
        return value

    async with h:
        await h.app.queue(aside, "1")
        assert await dispatched(h) == 1
        await h.app.queue(h.job, "2")
        assert await dispatched(h) == 1

        await h.app.queue(h.job, "3")
        await h.app.queue(aside, "4", priority=31)
        assert await dispatched(h) == 0, "a full system lets nobody in"

        active = await h.app.executions.list(state=State.PENDING)
        assert sorted(run.train for run in active) == ["aside", "job"]


async def test_entries_behind_an_excluded_train_are_admitted_at_once(url: str) -> None:
    h = ManagerHarness(url, TEN, max_active_jobs=2)

    @h.app.train(exclude_from_max_active_jobs=True)
    async def aside(value: str) -> str:
        return value

    async with h:
        await h.app.queue_many(aside, ["1", "2"], priority=31)
        await h.app.queue_many(h.job, ["3", "4"])

        first = await h.cycle("job_dispatcher")

        assert first.run_again, "those admitted use no capacity, so that the others may run too"
        assert await dispatched(h) == 2
        assert not (await h.cycle("job_dispatcher")).run_again


DUTIES = ["manifest_manager", "job_dispatcher", "metadata_cleanup", "dead_letter_cleanup"]


@pytest.mark.parametrize("duty", DUTIES)
async def test_an_idle_cycle_writes_nothing(url: str, duty: str) -> None:
    h = ManagerHarness(url, TEN, metadata_cleanup_enabled=True, metadata_cleanup_trains=["job"])
    h.schedule(h.job, "sync", "sync", every(minutes=5))
    async with h:
        await h.run_until_idle()
        asked: list[str] = []
        wrote: list[str] = []

        def note(_connection: Any, cursor: Any, statement: str, *_rest: Any) -> None:
            is_write = statement.startswith(("INSERT", "UPDATE", "DELETE")) and cursor.rowcount
            (wrote if is_write else asked).append(statement)

        engine = h.store._engine  # pyright: ignore[reportPrivateUsage]
        event.listen(engine, "after_cursor_execute", note)

        await h.cycle(duty)

        event.remove(engine, "after_cursor_execute", note)
        assert asked
        assert wrote == []


async def test_administrative_runs_are_listed_only_on_request(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", every(minutes=5))
    async with h:
        await h.run_until_idle()

        assert {run.train for run in await h.app.executions.list()} == {"job"}
        assert [run.train for run in await h.app.executions.list(train="trax.manifest_manager")]
        both = {run.train for run in await h.app.executions.list(admin=True)}
        assert {"job", "trax.manifest_manager"} <= both


async def test_slots_follow_the_settings_while_the_worker_lives(url: str) -> None:
    app = Trax(url, polling_interval=HOUR, local_worker_count=1)
    together = asyncio.Event()
    inside: set[int] = set()

    @app.train
    async def meet(number: int) -> None:
        inside.add(number)
        if len(inside) == 3:
            together.set()
        await together.wait()

    async with asyncio.timeout(30), app:
        await app.queue_many(meet, [1, 2, 3])
        await app.settings.update(local_worker_count=3)
        await together.wait()

        store = await app.context.store.open()
        assert [worker.concurrency for worker in await store.ask(workers.load_list)] == [3]


async def test_a_worker_started_with_a_number_of_slots_keeps_it(url: str) -> None:
    async with ManagerHarness(url, TEN) as h:
        worker = await Worker.start(h.app.context, h.store, slots=2)
        await h.app.settings.update(local_worker_count=7)

        await worker.send_heartbeat()

        assert [one.concurrency for one in h.store.read(workers.load_list)] == [2]
        await worker.unregister()
