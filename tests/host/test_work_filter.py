"""Workers that take only some of the runs, alone and at the gate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from trax import Trax
from trax.errors import DefinitionError, UnknownTrain
from trax.records import State
from trax.testing import Harness
from trax.worker.app_context import WorkFilter, WorkFilterKeywords
from trax.worker.dispatcher import dispatch_now
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.store import Store


class Kitchen:
    """Two trains, two groups, and workers as picky as a test wants them."""

    def __init__(self, url: str) -> None:
        self.app = Trax(url, max_active_jobs=None, app_version="2.5", host_labels={"zone": "b"})
        self.h = Harness(self.app)

        @self.app.train(aliases=["roast"])
        async def bake(what: str) -> str:
            return what

        @self.app.train
        async def wash(what: str) -> str:
            return what

        self.trains = {"bake": bake, "wash": wash}

    @property
    def store(self) -> Store:
        return self.app.context.store.open_blocking()

    async def queue(self, train: str, what: str, group: str | None = None) -> None:
        await self.app.queue(self.trains[train], what, group=group)

    async def worker(self, only: WorkFilterKeywords, **more: Any) -> Worker:
        takes = WorkFilter.parse(self.app.trains, only)
        return await Worker.start(self.app.context, self.store, 4, work_filter=takes, **more)

    async def done(self) -> list[Any]:
        return sorted(run.input for run in await self.app.executions.list(state="completed"))


@pytest.fixture
async def kitchen(url: str) -> AsyncGenerator[Kitchen]:
    kitchen = Kitchen(url)
    async with asyncio.timeout(60), kitchen.h:
        await kitchen.queue("bake", "bread")
        await kitchen.queue("bake", "cake", group="cakes")
        await kitchen.queue("wash", "plate")
        await kitchen.queue("wash", "cake tin", group="cakes")
        yield kitchen


@pytest.mark.parametrize(
    ("only", "taken"),
    [
        (WorkFilterKeywords(), ["bread", "cake", "cake tin", "plate"]),
        (WorkFilterKeywords(trains=["bake"]), ["bread", "cake"]),
        (WorkFilterKeywords(trains=["roast"]), ["bread", "cake"]),
        (WorkFilterKeywords(groups=["cakes"]), ["cake", "cake tin"]),
        (WorkFilterKeywords(groups=["cakes", "pies"], trains=["bake"]), ["cake"]),
        (WorkFilterKeywords(groups=["pies"]), []),
    ],
)
async def test_a_worker_claims_only_its_trains_and_groups(
    kitchen: Kitchen, only: WorkFilterKeywords, taken: list[str]
) -> None:
    await kitchen.h.cycle("job_dispatcher")
    worker = await kitchen.worker(only)

    await worker.run_all()
    await worker.unregister()

    left = await kitchen.app.executions.list(state=State.PENDING)
    assert (await kitchen.done(), len(left)) == (taken, 4 - len(taken))


@pytest.mark.parametrize(
    ("only", "taken"),
    [
        (WorkFilterKeywords(trains=["bake"]), ["bread", "cake"]),
        (WorkFilterKeywords(groups=["cakes"]), ["cake", "cake tin"]),
        (WorkFilterKeywords(trains=["bake"], groups=["cakes", "pies"]), ["cake"]),
    ],
)
async def test_a_worker_that_dispatches_claims_only_its_trains_and_groups(
    kitchen: Kitchen, only: WorkFilterKeywords, taken: list[str]
) -> None:
    """All of it is let in; what this worker leaves is pending for others."""
    worker = await kitchen.worker(only, dispatches=True)

    dispatched = await worker.dispatch_and_claim(_gate(kitchen))
    while worker.load.prefetched:  # noqa: ASYNC110 - a slot takes them in the next loop iterations
        await asyncio.sleep(0)
    await worker.drain(30)
    await worker.unregister()

    left = await kitchen.app.executions.list(state=State.PENDING)
    assert (len(dispatched.claimed), len(left)) == (len(taken), 4 - len(taken))
    assert await kitchen.done() == taken


async def test_the_row_of_a_worker_shows_its_filters_and_release(kitchen: Kitchen) -> None:
    plain, picky = (
        await kitchen.worker(WorkFilterKeywords()),
        await kitchen.worker(WorkFilterKeywords(trains=["bake"], groups=["cakes"])),
    )

    async with kitchen.app.receiver():
        first, second, third = [one.worker for one in await kitchen.app.workers.list()]

    assert (first.trains, first.groups, first.receives) == (("bake", "wash"), None, False)
    assert (second.trains, second.groups) == (("bake",), ("cakes",))
    assert (first.app_version, first.host_labels) == ("2.5", {"zone": "b"})
    assert first.version
    assert third.receives
    await plain.unregister()
    await picky.unregister()


async def test_the_slots_of_a_receiver_are_no_room_for_what_waits_for_workers(kitchen: Kitchen) -> None:
    """Nobody brings it what is pending for workers, so the gate does not count on it."""
    worker = await kitchen.worker(WorkFilterKeywords(), dispatches=True)
    async with kitchen.app.receiver(concurrency=50):
        for number in range(10):
            await kitchen.queue("wash", f"cup {number}")
        dispatched = await worker.dispatch_and_claim(_gate(kitchen))

    assert len(dispatched.metadata_ids) == 4
    await worker.drain(30)
    await worker.unregister()


def _gate(kitchen: Kitchen) -> Any:
    async def visit(taker: Any) -> Any:
        return await kitchen.store.call(dispatch_now, kitchen.store, kitchen.app.context, taker)

    return visit


async def test_a_missing_group_is_reported(kitchen: Kitchen, caplog: pytest.LogCaptureFixture) -> None:
    kitchen.store.read(
        WorkFilter.parse(
            kitchen.app.trains, WorkFilterKeywords(groups=["cakes", "pies"])
        ).warn_about_missing_groups
    )

    assert "group 'pies' does not exist yet" in caplog.text


@pytest.mark.parametrize(
    ("only", "error", "said"),
    [
        (WorkFilterKeywords(trains=["bakee"]), UnknownTrain, "did you mean 'bake'"),
        (WorkFilterKeywords(trains=[]), DefinitionError, "trains must be a list of at least one name"),
        (WorkFilterKeywords(groups=[""]), DefinitionError, "groups must be a list of at least one name"),
        (cast("Any", {"train": ["bake"]}), DefinitionError, "unknown option 'train'; did you mean 'trains'"),
        (WorkFilterKeywords(groups="cakes"), DefinitionError, "groups must be a list of at least one name"),
    ],
)
def test_an_empty_or_unknown_filter_is_refused_before_the_start(
    only: WorkFilterKeywords, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        WorkFilter.parse(Kitchen("memory://").app.trains, only)
