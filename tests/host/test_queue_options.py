"""What a caller may say when asking for a run, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from trax import InvalidInput, Retry, Trax, every
from trax.errors import DefinitionError, UnknownTrain
from trax.records import Origin, QueueStatus
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
NAIVE = datetime(2027, 3, 1, 12)  # noqa: DTZ001 - the point


class Order(BaseModel):
    number: int
    placed_at: datetime = NOON


@pytest.fixture
def app(url: str) -> Generator[Trax]:
    made = Trax(url, max_input_bytes=200)

    @made.train(max_retries=2, timeout=timedelta(minutes=1))
    async def ship(order: Order) -> int:
        return order.number

    @made.train(group="mail")
    async def greet(name: str) -> str:
        return name

    yield made
    made.close()


def stored(app: Trax, column: str) -> list[Any]:
    def read(connection: Connection) -> list[Any]:
        queue = tables(connection).work_queue
        return list(connection.execute(queue.select().order_by(queue.c.id)).scalars(column))

    return app.context.store.open_blocking().read(read)


async def test_an_entry_may_wait_for_a_moment(app: Trax) -> None:
    async with Harness(app, now=NOON) as h:
        later = await app.queue(app.trains.get("greet"), "Ada", at=NOON + timedelta(hours=1))
        past = await app.queue(app.trains.get("greet"), "Grace", at=NOON - timedelta(hours=1))

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
async def test_what_cannot_work_is_refused_and_nothing_is_written(
    app: Trax, how: dict[str, Any], said: str
) -> None:
    greet = app.trains.get("greet")

    with pytest.raises(DefinitionError, match=said):
        await app.queue(greet, "Ada", **how)
    with pytest.raises(DefinitionError, match=said):
        app.sync.queue(greet, "Ada", **how)

    assert await app.work_queue.list() == []


async def test_one_key_cannot_stand_for_many_entries(app: Trax) -> None:
    how: Any = {"unique": "ada"}

    with pytest.raises(DefinitionError, match="queue_many does not accept unique"):
        await app.queue_many("greet", ["Ada", "Grace"], **how)

    assert await app.work_queue.list() == []


async def test_retries_and_timeout_replace_what_the_train_says(app: Trax) -> None:
    ship = app.trains.get("ship")

    await app.queue(ship, Order(number=1))
    await app.queue(ship, Order(number=1), max_retries=7, timeout=timedelta(seconds=5))
    await app.queue(ship, Order(number=1), retry=Retry(max_retries=9, delay=timedelta(seconds=1)))
    await app.queue(ship, Order(number=1), retry=Retry(max_retries=9), max_retries=4)

    policies = [json.loads(text) for text in stored(app, "retry")]
    assert [policy["max_retries"] for policy in policies] == [2, 7, 9, 4]
    assert [policy["delay"] for policy in policies] == [300, 300, 1, 300]
    assert stored(app, "timeout_seconds") == [60, 5, 60, 60]


async def test_a_train_can_be_named_and_takes_plain_data(app: Trax) -> None:
    entry = await app.queue("ship", {"number": "7", "placed_at": "2027-03-01T12:00:00Z"}, priority=99)
    blocking = app.sync.queue("greet", "Ada")
    many = await app.queue_many("ship", [{"number": 1}, Order(number=2)])

    assert (entry.train, entry.status, entry.manifest) == ("ship", QueueStatus.QUEUED, None)
    assert (entry.input, entry.priority) == ({"number": 7, "placed_at": "2027-03-01T12:00:00Z"}, 31)
    assert (blocking.train, blocking.input, blocking.group) == ("greet", "Ada", "mail")
    assert [one.input["number"] for one in many] == [1, 2]


async def test_a_name_nobody_has_is_refused_with_the_nearest_one(app: Trax) -> None:
    with pytest.raises(UnknownTrain, match="did you mean 'greet'"):
        await app.queue("gret", "Ada")


@pytest.mark.parametrize("value", [{}, {"number": "seven"}, {"number": float("nan")}, None, "Ada", object()])
async def test_plain_data_that_the_type_refuses_is_refused(app: Trax, value: Any) -> None:
    with pytest.raises(InvalidInput, match="train 'ship': invalid input"):
        await app.queue("ship", value)

    assert await app.work_queue.list() == []


@pytest.mark.parametrize("value", ["x" * 199, "ü" * 100])
async def test_an_input_that_measures_too_much_is_refused(app: Trax, value: str) -> None:
    said = "train 'greet': invalid input.* the JSON has 20. bytes; max_input_bytes is 200"

    with pytest.raises(InvalidInput, match=said):
        await app.queue(app.trains.get("greet"), value)
    with pytest.raises(InvalidInput, match="max_input_bytes is 200"):
        await app.queue_many("greet", ["fits", value])
    await app.queue("greet", "x" * 198)

    assert len(await app.work_queue.list()) == 1


async def test_a_schedule_whose_input_measures_too_much_is_refused(app: Trax) -> None:
    greet, large, hourly = app.trains.get("greet"), "x" * 199, every(hours=1)
    said = "manifest 'greet-ada': train 'greet': invalid input.* max_input_bytes is 200"

    with pytest.raises(InvalidInput, match=said):
        app.schedule(greet, "greet-ada", large, hourly)
    with pytest.raises(InvalidInput, match=said):
        await app.manifests.schedule(greet, "greet-ada", large, hourly)
    await app.manifests.schedule(greet, "greet-grace", "x" * 198, hourly)

    assert [manifest.external_id for manifest in await app.manifests.list()] == ["greet-grace"]


async def test_a_train_of_another_app_is_refused(app: Trax) -> None:
    other = Trax("memory://")

    @other.train
    async def greet(name: str) -> str:
        return name

    with pytest.raises(DefinitionError, match="'greet' is not registered in this app"):
        await app.queue(greet, "Ada")


async def test_nothing_to_queue_is_no_error(app: Trax) -> None:
    assert await app.queue_many("greet", []) == []
    assert app.sync.queue_many("greet", []) == []


def test_blocking_code_queues_many(app: Trax) -> None:
    entries = app.sync.queue_many(app.trains.get("greet"), (name for name in ("Ada", "Grace")))

    assert [entry.input for entry in entries] == ["Ada", "Grace"]


async def test_blocking_code_triggers(app: Trax) -> None:
    app.schedule(app.trains.get("greet"), "greet-ada", "Ada", every(hours=1))

    async with Harness(app, now=NOON):
        entry = await asyncio.to_thread(app.sync.trigger, "greet-ada", delay=timedelta(minutes=1))
        with pytest.raises(DefinitionError, match="delay must be"):
            app.sync.trigger("greet-ada", delay=timedelta(-1))

    assert (entry.manifest, entry.origin) == ("greet-ada", Origin.TRIGGER)
    assert entry.scheduled_at == NOON + timedelta(minutes=1)
