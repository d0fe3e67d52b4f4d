from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from trax import Trax, every

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


async def test_what_is_queued_runs_at_once(app: Trax) -> None:
    done = asyncio.Event()

    @app.train
    async def greet(_name: str) -> None:
        done.set()

    async with asyncio.timeout(30), app:
        await app.queue(greet, "Ada")
        await done.wait()


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


async def test_leaving_the_block_lets_the_run_under_way_end(app: Trax) -> None:
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


async def test_operators_are_heard_at_once(app: Trax) -> None:
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
