from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from trax import Trax
from trax.records import Origin, QueueStatus
from trax.store import Store, work_queue

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


@pytest.fixture
def opened(app: Trax) -> Store:
    return app.parts.store.opened_blocking()


async def test_queueing_writes_one_entry_and_runs_nothing(app: Trax, opened: Store) -> None:
    @app.train
    async def greet(name: str) -> str:
        raise AssertionError(name)

    entry = await app.queue(greet, "Ada", priority=5, group="mail")

    assert opened.read(work_queue.get, entry.id) == entry
    assert (entry.train, entry.status, entry.origin) == ("greet", QueueStatus.QUEUED, Origin.QUEUE)
    assert (entry.input, entry.priority, entry.group) == ("Ada", 5, "mail")
    assert await app.executions.list() == []


@pytest.mark.parametrize(("given", "kept"), [(99, 31), (-5, 0), (31, 31), (None, 7)])
async def test_priority_is_kept_within_its_range_and_defaults_to_the_trains(
    app: Trax, given: int | None, kept: int
) -> None:
    @app.train(priority=7, group="mail")
    async def greet(name: str) -> str:
        return name

    entry = await app.queue(greet, "Ada", priority=given)

    assert (entry.priority, entry.group) == (kept, "mail")


async def test_a_delayed_entry_names_its_moment(app: Trax, opened: Store) -> None:
    @app.train
    async def greet(name: str) -> str:
        return name

    entry = await app.queue(greet, "Ada", delay=timedelta(minutes=5))

    assert entry.scheduled_at == entry.created_at + timedelta(minutes=5)
    assert opened.read(work_queue.get, entry.id) == entry


async def test_any_number_is_queued_in_one_call(app: Trax, opened: Store) -> None:
    @app.train
    async def count(number: int) -> None:
        raise AssertionError(number)

    entries = await app.queue_many(count, range(2_000))

    assert [entry.input for entry in entries] == list(range(2_000))
    assert opened.read(work_queue.get, entries[-1].id) == entries[-1]


async def test_one_wrong_input_among_many_leaves_no_entry(app: Trax, opened: Store) -> None:
    @app.train
    async def count(number: int) -> None:
        raise AssertionError(number)

    with pytest.raises(Exception, match="refused its input"):
        await app.queue_many(count, [1, 2, "three"])  # pyright: ignore[reportArgumentType]

    assert opened.read(work_queue.get, 1) is None


def test_blocking_code_queues_too(app: Trax, opened: Store) -> None:
    @app.train
    def greet(name: str) -> str:
        return name

    entry = app.sync.queue(greet, "Ada", priority=3)

    assert opened.read(work_queue.get, entry.id) == entry
