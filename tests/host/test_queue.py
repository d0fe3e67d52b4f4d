from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support import listing
from tests.support.databases import IN_MEMORY_TOO

from trax import Metadata, Trax
from trax.errors import DefinitionError
from trax.records import Origin, QueueStatus, State
from trax.store.queue import work_queue

if TYPE_CHECKING:
    from collections.abc import Generator

    from trax.store import Store

pytestmark = IN_MEMORY_TOO


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


@pytest.fixture
def opened(app: Trax) -> Store:
    return app.context.store.open_blocking()


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

    with pytest.raises(Exception, match="invalid input"):
        await app.queue_many(count, [1, 2, "three"])  # pyright: ignore[reportArgumentType]

    assert opened.read(work_queue.get, 1) is None


def test_blocking_code_queues_too(app: Trax, opened: Store) -> None:
    @app.train
    def greet(name: str) -> str:
        return name

    entry = app.sync.queue(greet, "Ada", priority=3)

    assert opened.read(work_queue.get, entry.id) == entry


async def test_on_queue_sees_what_will_be_recorded_and_may_refuse_it(app: Trax, opened: Store) -> None:
    seen: list[Metadata] = []

    async def look(record: Metadata) -> None:
        seen.append(record)
        if record.input == "Mallory":
            raise PermissionError(record.input)

    @app.train(on_queue=look, group="mail")
    async def greet(name: str) -> str:
        return name

    entry = await app.queue(greet, "Ada", priority=5)
    with pytest.raises(PermissionError, match="Mallory"):
        await app.queue_many(greet, ["Bob", "Mallory"])

    assert (seen[0].external_id, seen[0].train) == (entry.external_id, "greet")
    assert (seen[0].state, seen[0].priority, seen[0].group) == (State.PENDING, 5, "mail")
    assert [one.id for one in opened.read(listing.entries)] == [entry.id]


def test_an_async_on_queue_cannot_be_asked_from_blocking_code(app: Trax) -> None:
    async def look(_record: Metadata) -> None: ...

    @app.train(on_queue=look)
    def greet(name: str) -> str:
        return name

    with pytest.raises(DefinitionError, match="on_queue is async"):
        app.sync.queue(greet, "Ada")
