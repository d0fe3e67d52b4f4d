from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import until

from trax import Trax
from trax.errors import DefinitionError
from trax.worker.run_limits import RunSlots

if TYPE_CHECKING:
    from collections.abc import Generator

    from trax import Train


@pytest.fixture
def app() -> Generator[Trax]:
    made = Trax("memory://")
    made.context.store.open_blocking()  # so that callers come in the order they are started
    yield made
    made.close()


class Gauge:
    """Runs that wait until they are let go, counted."""

    def __init__(self, app: Trax, **options: Any) -> None:
        self.running = 0
        self.most = 0
        self.order: list[int] = []
        self._changed = asyncio.Condition()
        self._let_go = 0

        async def hold(number: int) -> int:
            async with self._changed:
                self.running += 1
                self.most = max(self.most, self.running)
                self.order.append(number)
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._let_go > 0)
                self._let_go -= 1
                self.running -= 1
            return number

        self.train: Train[int, int] = app.train(**options)(hold)

    async def has(self, running: int) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: self.running == running)

    async def let_go(self, count: int) -> None:
        async with self._changed:
            self._let_go += count
            self._changed.notify_all()


async def settled() -> None:
    """Let every task that can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_no_more_runs_at_once_than_the_train_allows_and_all_of_them_in_turn(app: Trax) -> None:
    gauge = Gauge(app, concurrency_limit=2)

    runs = [asyncio.create_task(app.run(gauge.train, number)) for number in range(5)]
    await gauge.has(2)
    await gauge.let_go(5)

    assert await asyncio.gather(*runs) == [0, 1, 2, 3, 4]
    assert gauge.most == 2
    assert sorted(gauge.order[:2]) == [0, 1]
    assert sorted(gauge.order) == [0, 1, 2, 3, 4]


async def test_the_longest_waiting_caller_is_next(app: Trax) -> None:
    gauge = Gauge(app, concurrency_limit=1)

    runs: list[asyncio.Task[int]] = []
    for number in range(5):
        runs.append(asyncio.create_task(app.run(gauge.train, number)))
        await gauge.has(1)
        await settled()
    await gauge.let_go(5)
    await asyncio.gather(*runs)

    assert gauge.order == [0, 1, 2, 3, 4]


async def test_a_caller_that_gives_up_waiting_keeps_no_slot(app: Trax) -> None:
    gauge = Gauge(app, concurrency_limit=1)
    first = asyncio.create_task(app.run(gauge.train, 0))
    await gauge.has(1)
    waiting = [asyncio.create_task(app.run(gauge.train, number)) for number in (1, 2)]
    await settled()

    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert gauge.running == 1

    await gauge.let_go(2)
    assert await asyncio.gather(first, waiting[1]) == [0, 2]
    assert len(await app.executions.list()) == 2


async def test_a_slot_given_in_the_moment_of_giving_up_goes_to_the_next() -> None:
    slots, order, go_on = RunSlots(), list[str](), asyncio.Event()

    async def hold(name: str) -> None:
        async with slots.hold(1):
            order.append(name)

    async def give_way() -> None:
        async with slots.hold(1):
            await go_on.wait()
        unlucky.cancel()  # its turn has come, but it does not know yet

    giving = asyncio.create_task(give_way())
    await settled()
    unlucky, following = asyncio.create_task(hold("unlucky")), asyncio.create_task(hold("following"))
    await settled()
    go_on.set()
    await giving

    async with asyncio.timeout(30):
        await following
    assert order == ["following"]
    assert unlucky.cancelled()


async def test_a_limit_of_the_app_overrides_that_of_the_train(app: Trax) -> None:
    gauge = Gauge(app, concurrency_limit=5)
    app.limit_runs(gauge.train, 1)

    runs = [asyncio.create_task(app.run(gauge.train, number)) for number in range(3)]
    await gauge.has(1)
    await gauge.let_go(3)
    await asyncio.gather(*runs)

    assert gauge.most == 1


async def test_all_runs_together_may_be_limited() -> None:
    app = Trax("memory://", max_concurrent_runs=2)
    gauge = Gauge(app)

    runs = [asyncio.create_task(app.run(gauge.train, number)) for number in range(5)]
    await gauge.has(2)
    await gauge.let_go(5)
    await asyncio.gather(*runs)

    assert gauge.most == 2
    app.close()


async def test_a_run_inside_another_does_not_wait_for_it() -> None:
    app = Trax("memory://", max_concurrent_runs=1)

    @app.train(concurrency_limit=1)
    async def count(number: int) -> int:
        return await app.run(count, number - 1) + 1 if number else 0

    async with asyncio.timeout(30):
        assert await app.run(count, 3) == 3
    app.close()


def test_blocking_callers_in_several_threads_share_a_limit(app: Trax) -> None:
    waiting: Any = None
    order: list[int] = []

    @app.train(concurrency_limit=1)
    def hold(number: int) -> int:
        if not order:  # the first one holds its slot until all others wait for it
            until(lambda: len(waiting) == 5)
        order.append(number)
        return number

    waiting = app.context.limits._slots_of(hold)._waiting  # pyright: ignore[reportPrivateUsage]

    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(partial(app.sync.run, hold), range(6)))

    assert results == [0, 1, 2, 3, 4, 5]
    assert sorted(order) == results


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "two"])
def test_a_limit_is_a_whole_number_from_1_on(app: Trax, wrong: Any) -> None:
    async def work(_: int) -> None: ...

    with pytest.raises(DefinitionError, match=r"concurrency_limit must be a whole number from 1 to 10000"):
        app.train(concurrency_limit=wrong)(work)
    train = app.train(work)
    with pytest.raises(
        DefinitionError, match="the limit of train 'work' must be a whole number from 1 to 10000"
    ):
        app.limit_runs(train, wrong)
