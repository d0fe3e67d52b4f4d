from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support import listing
from tests.support.waiting import until

from trax import Retry, Trax, every
from trax.errors import DefinitionError, InvalidUrl, TraxError
from trax.records import State
from trax.server import loops, roles
from trax.store import workers
from trax.store.manifests import manifest_rows

if TYPE_CHECKING:
    from trax.store import Store

HOUR = timedelta(hours=1)


@pytest.fixture
def app(url: str) -> Trax:
    """An app that would never poll within a test: only wake-ups and timers move it."""
    return Trax(url, polling_interval=HOUR, local_polling_interval=HOUR)


async def test_a_schedule_fires_and_its_dependent_follows(app: Trax) -> None:
    done = asyncio.Event()
    ran: list[str] = []

    @app.train
    async def note(word: str) -> None:
        ran.append(word)
        if word == "second":
            done.set()

    app.schedule(note, "first", "first", every(hours=1)).then_include(note, "second", "second")

    async with asyncio.timeout(30), app:
        await done.wait()

    assert ran == ["first", "second"]


async def test_a_queued_job_runs_at_once(app: Trax) -> None:
    done = asyncio.Event()

    @app.train
    async def greet(_name: str) -> None:
        done.set()

    async with asyncio.timeout(30), app:
        await app.queue(greet, "Ada")
        await done.wait()


async def test_a_job_that_cancels_every_task_of_the_process_stops_no_loop(
    app: Trax, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(roles, "RESTART_SECONDS", 0.0)

    @app.train(retry=Retry(max_retries=1))
    async def cancel_all(_number: int) -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("trax") and task is not asyncio.current_task():
                task.cancel()

    @app.train
    async def greet(name: str) -> str:
        return name

    async with asyncio.timeout(60), app:
        await app.queue(cancel_all, 1)
        while "ended unexpectedly (its task was cancelled)" not in caplog.text:  # noqa: ASYNC110 - only logged
            await asyncio.sleep(0)
        entry = await app.queue(greet, "Ada")
        assert (await entry.wait(timeout=60)).state is State.COMPLETED


async def test_a_timer_is_set_to_the_next_moment(app: Trax) -> None:
    done = asyncio.Event()
    moments: list[str] = []

    @app.train
    async def greet(name: str) -> None:
        moments.append(name)
        if len(moments) == 2:
            done.set()

    app.schedule(greet, "often", "tick", every(seconds=1))

    async with asyncio.timeout(30), app:
        await done.wait()

    assert moments == ["tick", "tick"]


async def test_leaving_the_block_waits_for_the_run_in_progress(app: Trax) -> None:
    started = asyncio.Event()
    go_on = asyncio.Event()
    ended: list[int] = []

    @app.train
    async def slow(number: int) -> None:
        started.set()
        await go_on.wait()
        ended.append(number)

    await app.start()
    await app.queue(slow, 1)
    await started.wait()
    stopping = asyncio.create_task(app.stop())
    await asyncio.sleep(0)
    go_on.set()
    await stopping

    assert ended == [1]


async def test_changes_by_operators_apply_at_once(app: Trax) -> None:
    runs = asyncio.Queue[str]()

    @app.train
    async def greet(name: str) -> None:
        runs.put_nowait(name)

    app.schedule(greet, "asleep", "Ada", every(hours=1), enabled=False)

    async with asyncio.timeout(30), app:
        await app.manifests.trigger("asleep")
        assert await runs.get() == "Ada"
        await app.manifests.schedule(greet, "new", "Grace", every(hours=1))
        assert await runs.get() == "Grace"


async def test_a_scheduler_admits_jobs_and_runs_none(app: Trax) -> None:
    ran: list[str] = []

    @app.train
    async def greet(name: str) -> None:
        ran.append(name)

    await app.start("scheduler")
    await app.queue(greet, "Ada")
    store = await app.context.store.open()
    somewhere = {"kind": "worker", "concurrency": 1, "trains": '["greet"]'}
    await store.call(app.context.heartbeat.register, store, somewhere)
    await asyncio.to_thread(until, lambda: _states(app) == [State.PENDING])
    await app.stop()

    assert ran == []


async def test_a_worker_admits_no_jobs(url: str) -> None:
    app = Trax(url, polling_interval=0.1, local_polling_interval=0.1, heartbeat_interval=0.1)

    @app.train
    async def greet(_name: str) -> None: ...

    await app.start("worker")
    entry = await app.queue(greet, "Ada")
    await asyncio.to_thread(until, lambda: _has_beaten(app))
    states = _states(app)
    await app.stop()

    assert entry.id
    assert states == []


async def test_concurrency_is_how_many_jobs_run_at_once(app: Trax) -> None:
    meeting = asyncio.Barrier(7)

    @app.train
    async def meet(_number: int) -> None:
        await meeting.wait()

    await app.start(concurrency=7)
    await app.queue_many(meet, range(7))
    async with asyncio.timeout(30):
        await asyncio.to_thread(until, lambda: _states(app) == [State.COMPLETED] * 7)
    await app.stop()


async def test_an_unknown_role_is_refused_with_the_known_ones(app: Trax) -> None:
    with pytest.raises(DefinitionError, match="invalid role 'works'; expected one of all, scheduler, worker"):
        await app.start("works")


async def test_interrupting_puts_back_what_runs(app: Trax) -> None:
    started, interrupt = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    @app.train
    async def long(_number: int) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("interrupted")

    await app.start()
    await app.queue(long, 1)
    await started.wait()
    stopping = asyncio.create_task(app.stop(interrupt))
    interrupt.set()
    async with asyncio.timeout(20):  # less than it would have been given
        await stopping

    assert ended == ["interrupted"]


def _states(app: Trax) -> list[State]:
    store = app.context.store.open_blocking()
    return [record.state for record in store.read(listing.runs)]


def _has_beaten(app: Trax) -> bool:
    (worker,) = app.context.store.open_blocking().read(workers.load_list)
    return worker.heartbeat_at > worker.started_at


async def test_an_app_that_runs_is_not_started_twice(app: Trax) -> None:
    async with app:
        with pytest.raises(TraxError, match="already running"):
            await app.start("worker")


async def test_a_listen_url_of_another_database_is_refused_at_the_start(postgres_url: str) -> None:
    app = Trax(postgres_url, listen_url="sqlite:///trax.db")

    with pytest.raises(InvalidUrl, match="listen_url must be a direct PostgreSQL URL"):
        await app.start()


@pytest.mark.parametrize("role", ["all", "scheduler"])
async def test_a_server_publishes_its_manifests_and_retires_the_rest_after_others_have_stopped(
    url: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url == "memory://":
        return  # another app cannot see it
    monkeypatch.setattr(loops, "HOUSEKEEPING_DELAY_SECONDS", 0)
    monkeypatch.setattr(loops, "RETIRE_SECONDS", 0.1)
    old, new = (Trax(url, name="shop", polling_interval=timedelta(hours=1)) for _ in range(2))
    for app, names in ((old, ("stays", "goes")), (new, ("stays",))):

        @app.train
        async def greet(_name: str) -> None: ...

        for name in names:
            app.schedule(greet, name, "Ada", every(hours=1), enabled=False)

    await old.start(role)
    await new.start(role)
    store = await new.context.store.open()
    servers = store.read(workers.servers, alive_since=datetime(2000, 1, 1, tzinfo=UTC))
    both = [one.external_id for one in await new.manifests.list()]
    await old.stop()
    await asyncio.to_thread(until, lambda: _live_manifests(store) == ["stays"])
    await new.stop()

    assert [one.app for one in servers] == ["shop", "shop"]
    assert len({one.declares for one in servers}) == 2
    assert both == ["goes", "stays"]


def _live_manifests(store: Store) -> list[str]:
    return [one.external_id for one in store.read(manifest_rows.load_list)]
