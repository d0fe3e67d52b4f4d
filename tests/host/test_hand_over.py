"""Runs handed over by a running app, and cancelled after that: their submitter is notified."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Trax
from trax.errors import DefinitionError
from trax.store import workers
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

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


class Cluster:
    """Takes everything, and can be told to forget it."""

    name = "cluster"

    def __init__(self) -> None:
        self.withdrawn: list[Submission] = []

    async def submit(self, batch: Sequence[Submission]) -> None: ...

    def withdraw(self, batch: Sequence[Submission]) -> None:
        self.withdrawn += batch


class CancellationSetup:
    """An app whose runs wait at a cluster."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.cluster = Cluster()
        self.app = Trax(url, submitter=self.cluster, **settings)
        self.h = Harness(self.app)

        @self.app.train
        async def work(number: int) -> int:
            return number

        self.work = work

    async def handed_over(self, number: int) -> int:
        await self.app.queue(self.work, number)
        await self.h.run_until_idle()
        return (await self.app.executions.list())[0].id


@pytest.fixture
async def setup(url: str) -> AsyncGenerator[CancellationSetup]:
    setup = CancellationSetup(url)
    async with asyncio.timeout(60), setup.h:
        yield setup


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


async def test_contradicting_routes_are_refused_at_the_start(url: str) -> None:
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


async def test_the_submitter_of_a_cancelled_run_is_notified(setup: CancellationSetup) -> None:
    unwanted, _ = await setup.handed_over(1), await setup.handed_over(2)

    await setup.app.executions.cancel([unwanted])

    (told,) = setup.cluster.withdrawn
    assert (told.metadata_id, told.train, told.input) == (unwanted, "work", "1")
    assert told.external_id == (await setup.app.executions.get(unwanted)).external_id


async def test_a_started_run_is_cancelled_by_its_record_alone(setup: CancellationSetup) -> None:
    number = await setup.handed_over(1)
    async with setup.app.receiver() as receiver:
        assert await receiver.execute(number)

    await setup.app.executions.cancel([number])

    assert setup.cluster.withdrawn == []


async def test_cancelling_a_run_before_its_hand_over_notifies_no_submitter(setup: CancellationSetup) -> None:
    await setup.app.queue(setup.work, 1)
    await setup.h.cycle("job_dispatcher")
    (run,) = await setup.app.executions.list()

    await setup.app.executions.cancel([run.id])

    assert setup.cluster.withdrawn == []


async def test_a_failing_submitter_does_not_prevent_a_cancellation(
    setup: CancellationSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: object) -> None:
        raise ConnectionError("nobody there")

    number = await setup.handed_over(1)
    monkeypatch.setattr(setup.cluster, "withdraw", nobody)

    assert await setup.app.executions.cancel([number]) == [number]

    assert (await setup.app.executions.get(number)).state == "cancelled"


async def test_a_cancellation_does_not_wait_for_a_silent_submitter(monkeypatch: pytest.MonkeyPatch) -> None:
    def silence(_: object) -> None:
        release.wait(60)

    setup, release = (
        CancellationSetup("memory://", hand_over_timeout=timedelta(seconds=0.05)),
        threading.Event(),
    )
    monkeypatch.setattr(setup.cluster, "withdraw", silence)
    async with asyncio.timeout(30), setup.h:
        number = await setup.handed_over(1)

        assert await setup.app.executions.cancel([number]) == [number]

        release.set()
