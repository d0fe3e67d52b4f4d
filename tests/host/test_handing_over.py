from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.errors import DefinitionError
from trax.store import workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trax import Submission

HOUR = timedelta(hours=1)


class Remote:
    """Says what it was given to whoever waits."""

    def __init__(self, name: str = "remote") -> None:
        self.name = name
        self.given = asyncio.Queue[str | None]()

    async def submit(self, batch: Sequence[Submission]) -> None:
        for run in batch:
            self.given.put_nowait(run.input)


def app_at(url: str, **more: Any) -> Trax:
    """An app that would never poll within a test: only wake-ups and timers move it."""
    return Trax(url, polling_interval=HOUR, local_polling_interval=HOUR, **more)


async def test_a_running_app_hands_over_at_once_and_works_beside_it(url: str) -> None:
    app, remote = app_at(url), Remote()
    worked = asyncio.Event()

    @app.train
    async def far(number: int) -> int:
        return number

    @app.train
    async def near(_number: int) -> None:
        worked.set()

    app.route(far, to=remote)
    async with asyncio.timeout(30), app:
        await app.queue(far, 1)
        assert await remote.given.get() == "1"
        await app.queue(near, 2)
        await worked.wait()


async def test_with_another_default_no_workers_are_started(url: str) -> None:
    remote = Remote()
    app = app_at(url, submitter=remote)

    @app.train
    async def work(number: int) -> int:
        return number

    async with asyncio.timeout(30), app:
        await app.queue(work, 1)
        assert await remote.given.get() == "1"
        assert await (await app.context.store.open()).ask(workers.load_list) == []


async def test_a_submitter_that_hangs_holds_up_neither_the_others_nor_the_end(url: str) -> None:
    class Hanging(Remote):
        async def submit(self, batch: Sequence[Submission]) -> None:
            await super().submit(batch)
            await asyncio.Event().wait()

    app = app_at(url, shutdown_timeout=timedelta(0))
    hanging, remote = Hanging("hanging"), Remote()

    @app.train
    async def hung(number: int) -> int:
        return number

    @app.train
    async def work(number: int) -> int:
        return number

    app.route(hung, to=hanging)
    app.route(work, to=remote)
    async with asyncio.timeout(30), app:
        await app.queue(hung, 1)
        assert await hanging.given.get() == "1"
        await app.queue(work, 2)
        assert await remote.given.get() == "2"
        (left,) = await app.executions.list(train="hung")
        assert left.state == "pending"


async def test_what_cannot_be_routed_is_refused_when_the_app_starts(url: str) -> None:
    app = app_at(url)

    @app.train
    async def work(number: int) -> int:
        return number

    app.route(work, to=Remote("cluster"))
    app.route(work, to=Remote("cloud"))

    with pytest.raises(DefinitionError, match="'work' is routed to 'cluster' and 'cloud'"):
        await app.start()


async def test_only_a_train_of_the_app_can_be_routed() -> None:
    app, other = Trax("memory://"), Trax("memory://")

    @other.train
    async def work(number: int) -> int:
        return number

    with pytest.raises(DefinitionError, match="not registered in this app"):
        app.route(work, to=Remote())
