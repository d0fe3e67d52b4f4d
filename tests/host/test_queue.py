"""`app.queue`: what is stored, what a caller may ask for, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel
from tests.support import listing
from tests.support.databases import IN_MEMORY_TOO

from trax import InvalidInput, Metadata, Retry, Trax, every
from trax.errors import DefinitionError, UnknownTrain
from trax.records import Origin, QueueStatus, State
from trax.store.queue import work_queue
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

    from trax.store import Store

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
NAIVE = datetime(2027, 3, 1, 12)  # noqa: DTZ001 - the point


class Order(BaseModel):
    number: int
    placed_at: datetime = NOON


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url)
    yield made
    made.close()


@pytest.fixture
def opened(app: Trax) -> Store:
    return app.context.store.open_blocking()


@pytest.fixture
def shop(url: str) -> Generator[Trax]:
    made = Trax(url, max_input_bytes=200)

    @made.train(max_retries=2, timeout=timedelta(minutes=1))
    async def ship(order: Order) -> int:
        return order.number

    @made.train(group="mail")
    async def greet(name: str) -> str:
        return name

    yield made
    made.close()


def stored(shop: Trax, column: str) -> list[Any]:
    def read(connection: Connection) -> list[Any]:
        queue = tables(connection).work_queue
        return list(connection.execute(queue.select().order_by(queue.c.id)).scalars(column))

    return shop.context.store.open_blocking().read(read)


@IN_MEMORY_TOO
async def test_queueing_writes_one_entry_and_runs_nothing(app: Trax, opened: Store) -> None:
    @app.train
    async def greet(name: str) -> str:
        raise AssertionError(name)

    entry = await app.queue(greet, "Ada", priority=5, group="mail")

    assert opened.read(work_queue.get, entry.id) == entry
    assert (entry.train, entry.status, entry.origin) == ("greet", QueueStatus.QUEUED, Origin.QUEUE)
    assert (entry.input, entry.priority, entry.group) == ("Ada", 5, "mail")
    assert await app.executions.list() == []


@IN_MEMORY_TOO
@pytest.mark.parametrize(("given", "kept"), [(99, 31), (-5, 0), (31, 31), (None, 7)])
async def test_priority_is_kept_within_its_range_and_defaults_to_the_trains(
    app: Trax, given: int | None, kept: int
) -> None:
    @app.train(priority=7, group="mail")
    async def greet(name: str) -> str:
        return name

    entry = await app.queue(greet, "Ada", priority=given)

    assert (entry.priority, entry.group) == (kept, "mail")


@IN_MEMORY_TOO
async def test_a_delayed_entry_names_its_moment(app: Trax, opened: Store) -> None:
    @app.train
    async def greet(name: str) -> str:
        return name

    entry = await app.queue(greet, "Ada", delay=timedelta(minutes=5))

    assert entry.scheduled_at == entry.created_at + timedelta(minutes=5)
    assert opened.read(work_queue.get, entry.id) == entry


@IN_MEMORY_TOO
async def test_any_number_is_queued_in_one_call(app: Trax, opened: Store) -> None:
    @app.train
    async def count(number: int) -> None:
        raise AssertionError(number)

    entries = await app.queue_many(count, range(2_000))

    assert [entry.input for entry in entries] == list(range(2_000))
    assert opened.read(work_queue.get, entries[-1].id) == entries[-1]


@IN_MEMORY_TOO
async def test_one_wrong_input_among_many_leaves_no_entry(app: Trax, opened: Store) -> None:
    @app.train
    async def count(number: int) -> None:
        raise AssertionError(number)

    with pytest.raises(Exception, match="invalid input"):
        await app.queue_many(count, [1, 2, "three"])  # pyright: ignore[reportArgumentType]

    assert opened.read(work_queue.get, 1) is None


@IN_MEMORY_TOO
def test_blocking_code_queues_too(app: Trax, opened: Store) -> None:
    @app.train
    def greet(name: str) -> str:
        return name

    entry = app.sync.queue(greet, "Ada", priority=3)

    assert opened.read(work_queue.get, entry.id) == entry


@IN_MEMORY_TOO
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


@IN_MEMORY_TOO
def test_an_async_on_queue_cannot_be_called_from_blocking_code(app: Trax) -> None:
    async def look(_record: Metadata) -> None: ...

    @app.train(on_queue=look)
    def greet(name: str) -> str:
        return name

    with pytest.raises(DefinitionError, match="on_queue is async"):
        app.sync.queue(greet, "Ada")


async def test_an_entry_may_wait_for_a_moment(shop: Trax) -> None:
    async with Harness(shop, now=NOON) as h:
        later = await shop.queue(shop.trains.get("greet"), "Ada", at=NOON + timedelta(hours=1))
        past = await shop.queue(shop.trains.get("greet"), "Grace", at=NOON - timedelta(hours=1))

        before = (await h.cycle("job_dispatcher")).entry_ids
        await h.advance(hours=1)
        after = (await h.cycle("job_dispatcher")).entry_ids

    assert later.scheduled_at == NOON + timedelta(hours=1)
    assert (before, after) == ([past.id], [later.id])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"delay": timedelta(seconds=-1)}, "delay must be a timedelta from 0"),
        ({"delay": 5}, "delay must be a timedelta"),
        ({"at": NAIVE}, "at must be a datetime with a time zone"),
        ({"at": "tomorrow"}, "at must be a datetime"),
        ({"at": NOON, "delay": timedelta(1)}, "delay and at cannot be combined"),
        ({"unique": ""}, "unique must be text of 1 to"),
        ({"unique": "x" * 201}, "unique must be text of 1 to"),
        ({"unique": 7}, "unique must be text"),
        ({"group": " mail"}, "group must be text"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"retry": 3}, "retry must be a Retry"),
        ({"max_retries": -1}, "max_retries must be a whole number"),
        ({"timeout": timedelta()}, "timeout must be a timedelta above 0"),
        ({"connection": "postgresql://"}, "connection must be a SQLAlchemy Connection, Session, Async"),
    ],
)
async def test_an_impossible_option_is_refused_and_no_entry_is_written(
    shop: Trax, how: dict[str, Any], said: str
) -> None:
    greet = shop.trains.get("greet")

    with pytest.raises(DefinitionError, match=said):
        await shop.queue(greet, "Ada", **how)
    with pytest.raises(DefinitionError, match=said):
        shop.sync.queue(greet, "Ada", **how)

    assert await shop.work_queue.list() == []


async def test_one_key_cannot_stand_for_many_entries(shop: Trax) -> None:
    how: Any = {"unique": "ada"}

    with pytest.raises(DefinitionError, match="queue_many does not accept unique"):
        await shop.queue_many("greet", ["Ada", "Grace"], **how)

    assert await shop.work_queue.list() == []


async def test_retries_and_timeout_replace_those_of_the_train(shop: Trax) -> None:
    ship = shop.trains.get("ship")

    await shop.queue(ship, Order(number=1))
    await shop.queue(ship, Order(number=1), max_retries=7, timeout=timedelta(seconds=5))
    await shop.queue(ship, Order(number=1), retry=Retry(max_retries=9, delay=timedelta(seconds=1)))
    await shop.queue(ship, Order(number=1), retry=Retry(max_retries=9), max_retries=4)

    policies = [json.loads(text) for text in stored(shop, "retry")]
    assert [policy["max_retries"] for policy in policies] == [2, 7, 9, 4]
    assert [policy["delay"] for policy in policies] == [300, 300, 1, 300]
    assert stored(shop, "timeout_seconds") == [60, 5, 60, 60]


async def test_a_train_can_be_queued_by_name_with_plain_data(shop: Trax) -> None:
    entry = await shop.queue("ship", {"number": "7", "placed_at": "2027-03-01T12:00:00Z"}, priority=99)
    blocking = shop.sync.queue("greet", "Ada")
    many = await shop.queue_many("ship", [{"number": 1}, Order(number=2)])

    assert (entry.train, entry.status, entry.manifest) == ("ship", QueueStatus.QUEUED, None)
    assert (entry.input, entry.priority) == ({"number": 7, "placed_at": "2027-03-01T12:00:00Z"}, 31)
    assert (blocking.train, blocking.input, blocking.group) == ("greet", "Ada", "mail")
    assert [one.input["number"] for one in many] == [1, 2]


async def test_an_unknown_name_is_refused_with_the_nearest_one(shop: Trax) -> None:
    with pytest.raises(UnknownTrain, match="did you mean 'greet'"):
        await shop.queue("gret", "Ada")


@pytest.mark.parametrize("value", [{}, {"number": "seven"}, {"number": float("nan")}, None, "Ada", object()])
async def test_plain_data_that_the_type_refuses_is_refused(shop: Trax, value: Any) -> None:
    with pytest.raises(InvalidInput, match="train 'ship': invalid input"):
        await shop.queue("ship", value)

    assert await shop.work_queue.list() == []


@pytest.mark.parametrize("value", ["x" * 199, "ü" * 100])
async def test_an_oversized_input_is_refused(shop: Trax, value: str) -> None:
    said = "train 'greet': invalid input.* the JSON has 20. bytes; max_input_bytes is 200"

    with pytest.raises(InvalidInput, match=said):
        await shop.queue(shop.trains.get("greet"), value)
    with pytest.raises(InvalidInput, match="max_input_bytes is 200"):
        await shop.queue_many("greet", ["fits", value])
    await shop.queue("greet", "x" * 198)

    assert len(await shop.work_queue.list()) == 1


async def test_a_schedule_with_an_oversized_input_is_refused(shop: Trax) -> None:
    greet, large, hourly = shop.trains.get("greet"), "x" * 199, every(hours=1)
    said = "manifest 'greet-ada': train 'greet': invalid input.* max_input_bytes is 200"

    with pytest.raises(InvalidInput, match=said):
        shop.schedule(greet, "greet-ada", large, hourly)
    with pytest.raises(InvalidInput, match=said):
        await shop.manifests.schedule(greet, "greet-ada", large, hourly)
    await shop.manifests.schedule(greet, "greet-grace", "x" * 198, hourly)

    assert [manifest.external_id for manifest in await shop.manifests.list()] == ["greet-grace"]


async def test_a_train_of_another_app_is_refused(shop: Trax) -> None:
    other = Trax("memory://")

    @other.train
    async def greet(name: str) -> str:
        return name

    with pytest.raises(DefinitionError, match="'greet' is not registered in this app"):
        await shop.queue(greet, "Ada")


async def test_queueing_no_inputs_returns_no_entries(shop: Trax) -> None:
    assert await shop.queue_many("greet", []) == []
    assert shop.sync.queue_many("greet", []) == []


def test_blocking_code_queues_many(shop: Trax) -> None:
    entries = shop.sync.queue_many(shop.trains.get("greet"), (name for name in ("Ada", "Grace")))

    assert [entry.input for entry in entries] == ["Ada", "Grace"]


async def test_blocking_code_triggers(shop: Trax) -> None:
    shop.schedule(shop.trains.get("greet"), "greet-ada", "Ada", every(hours=1))

    async with Harness(shop, now=NOON):
        entry = await asyncio.to_thread(shop.sync.trigger, "greet-ada", delay=timedelta(minutes=1))
        with pytest.raises(DefinitionError, match="delay must be"):
            shop.sync.trigger("greet-ada", delay=timedelta(-1))

    assert (entry.manifest, entry.origin) == ("greet-ada", Origin.TRIGGER)
    assert entry.scheduled_at == NOON + timedelta(minutes=1)
