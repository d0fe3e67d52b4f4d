"""Entries that no live worker could start: they wait outside the gate, hold no place, and are seen."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Group, Trax, every
from trax.app.queue import Enqueuer
from trax.engine.routing import FleetCache
from trax.engine.schedule import schedule
from trax.inspect.status import status
from trax.records import State
from trax.records.status import Condition, health_of, problems
from trax.store import inspect, workers
from trax.store.schema import tables
from trax.testing import Harness
from trax.worker.dispatcher import dispatch_now

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.store import Connection
    from trax.worker.entry import QueuedEntry


class Yard:
    """An app with one train, and entries for trains that it does not have."""

    def __init__(self, h: Harness) -> None:
        self.h = h
        self.app = h.app
        self.ran: list[str] = []

        @self.app.train
        async def greet(name: str) -> None:
            self.ran.append(name)

        self.greet = greet

    async def queue(self, train: str, value: Any = None, **how: Any) -> QueuedEntry:
        options: Any = how
        return (await Enqueuer(self.app.context).enqueue(train, [value], options, has_code=False))[0]

    async def register(self, *trains: str, groups: list[str] | None = None, **columns: Any) -> int:
        """A worker of another process."""
        store, named = await self.app.context.store.open(), None if groups is None else json.dumps(groups)
        row = {"kind": "worker", "concurrency": 1, "trains": json.dumps(trains), "groups": named, **columns}
        return await store.call(self.app.context.heartbeat.register, store, row)

    async def parked(self) -> list[int]:
        queued = await self.app.work_queue.list(status="queued")
        return [entry.id for entry in queued if entry.parked_at is not None]

    async def places(self) -> int:
        store = await self.app.context.store.open()
        return sum((await store.ask(inspect.count_active_runs)).values())


@pytest.fixture
async def yard(url: str) -> AsyncGenerator[Yard]:
    async with Harness(Trax(url, max_active_jobs=2)) as h:
        yield Yard(h)


async def test_entries_of_a_train_that_nobody_takes_hold_no_place_and_hold_up_nobody(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        await yard.queue("greeet", priority=31)
    await yard.app.queue(yard.greet, "Ada")

    await yard.h.run_until_idle()

    assert (yard.ran, await yard.places(), len(await yard.parked())) == (["Ada"], 0, 10)
    said = [record.message for record in caplog.records if "no live worker" in record.message]
    assert len(said) == 1
    assert "no live worker accepts train 'greeet'; did you mean 'greet'?" in said[0]


async def test_a_flood_of_them_is_set_aside_once_and_looked_at_no_more(yard: Yard) -> None:
    store = await yard.app.context.store.open()
    await yard.queue("gone")
    await yard.app.queue_many(yard.greet, ["first"] * 3)
    await store.call(_flood, 2_000)
    await yard.app.queue(yard.greet, "last")

    for _ in range(2):
        await yard.h.cycle("job_dispatcher")

    assert len(await store.ask(_ready)) + await yard.places() == 4
    await yard.h.run_until_idle()
    assert sorted(yard.ran) == ["first", "first", "first", "last"]


def _flood(connection: Connection, count: int) -> None:

    queue = tables(connection).work_queue
    (row,) = connection.execute(queue.select().where(queue.c.train == "gone")).mappings()
    rows = [{**row, "id": 10_000 + n, "external_id": f"gone-{n}"} for n in range(count)]
    connection.execute(queue.insert(), rows)


def _ready(connection: Connection) -> list[int]:

    queue = tables(connection).work_queue
    return list(connection.execute(queue.select().where(queue.c.status == "queued", queue.c.ready)).scalars())


async def test_they_are_let_in_as_soon_as_a_worker_registers_that_has_the_train(yard: Yard) -> None:
    entry = await yard.queue("bake")
    await yard.h.run_until_idle()
    assert await yard.parked() == [entry.id]

    await yard.register("bake")
    while (await yard.h.cycle("job_dispatcher")).run_again:
        pass

    (run,) = await yard.app.executions.list()
    assert (run.train, run.state, await yard.parked()) == ("bake", State.PENDING, [])


async def test_a_worker_is_known_by_the_names_its_trains_had_before(yard: Yard) -> None:
    await yard.queue("old")

    await yard.register("new", aliases='["old"]')
    await yard.h.cycle("job_dispatcher")

    assert [run.train for run in await yard.app.executions.list()] == ["old"]


async def test_a_train_that_another_server_hands_over_is_let_in_for_its_submitter(yard: Yard) -> None:
    await yard.queue("far")

    await yard.register(kind="scheduler", concurrency=0, routes='{"far": "cluster"}')
    await yard.h.cycle("job_dispatcher")

    (run,) = await yard.app.executions.list()
    assert (run.train, run.submitter) == ("far", "cluster")


async def test_a_group_that_no_worker_takes_waits_too(yard: Yard) -> None:
    await yard.register("bake", groups=["day"])
    night = await yard.queue("bake", group="night")
    alone = await yard.queue("bake")
    day = await yard.queue("bake", group="day")

    await yard.h.cycle("job_dispatcher")
    assert await yard.parked() == [alone.id, night.id]
    assert [run.external_id for run in await yard.app.executions.list()] == [day.external_id]

    await yard.register("bake", groups=["night"])
    await yard.h.advance(seconds=3)
    await yard.h.cycle("job_dispatcher")
    await yard.h.cycle("job_dispatcher")
    assert await yard.parked() == [alone.id]


async def test_after_its_time_it_becomes_a_dead_letter_that_names_the_train_and_its_neighbour(
    yard: Yard,
) -> None:
    await yard.queue("greeet", "Ada")
    await yard.h.run_until_idle()

    await yard.h.advance(minutes=19)
    await yard.h.run_until_idle()
    assert await yard.app.dead_letters.list() == []
    await yard.h.advance(minutes=2)
    await yard.h.run_until_idle()

    (letter,) = await yard.app.dead_letters.list()
    assert (letter.train, letter.input, await yard.parked()) == ("greeet", "Ada", [])
    assert "no live worker accepts train 'greeet'; did you mean 'greet'?" in letter.reason
    assert await yard.app.executions.list() == []


async def test_the_time_it_waits_is_a_setting(url: str) -> None:
    async with Harness(Trax(url, unknown_train_timeout=timedelta(seconds=30))) as h:
        yard = Yard(h)
        await yard.queue("gone")
        await h.run_until_idle()

        await h.advance(seconds=31)
        await h.run_until_idle()

        assert len(await yard.app.dead_letters.list()) == 1


async def test_a_manifest_whose_train_is_gone_gets_one_dead_letter(yard: Yard) -> None:
    old = Trax("memory://")

    @old.train
    async def gone(_name: str) -> None: ...

    old.schedule(gone, "nightly", "Ada", every(minutes=1), group=Group("night"))
    store = await yard.app.context.store.open()
    settings = yard.app.context.settings

    await store.call(schedule, store, old.context.declarations.timetable(), settings)
    for _ in range(30):
        await yard.h.run_until_idle()
        await yard.h.advance(minutes=1)

    (letter,) = await yard.app.dead_letters.list()
    assert (letter.manifest, letter.train) == ("nightly", "gone")
    assert "no live worker accepts train 'gone'" in letter.reason


async def test_what_was_let_in_goes_back_when_the_last_worker_that_had_it_is_gone(yard: Yard) -> None:
    worker_id = await yard.register("bake")
    entries = [await yard.queue("bake") for _ in range(2)]
    await yard.h.cycle("job_dispatcher")
    assert await yard.places() == 2
    store = await yard.app.context.store.open()
    await store.call(workers.remove, worker_id)
    await yard.app.queue(yard.greet, "Ada")

    await yard.h.advance(seconds=21)
    await yard.h.run_until_idle()

    assert (yard.ran, await yard.places()) == (["Ada"], 0)
    assert await yard.parked() == [entry.id for entry in reversed(entries)]
    stranded = [run for run in await yard.app.executions.list() if run.train == "bake"]
    assert {(run.state, run.failure_exception) for run in stranded} == {(State.CANCELLED, "NoWorker")}


async def test_with_nobody_there_at_all_everything_keeps_its_place_in_the_queue(yard: Yard) -> None:
    await yard.queue("bake")
    store = await yard.app.context.store.open()

    dispatched = await store.call(dispatch_now, store, yard.app.context, fleets=FleetCache())

    assert (dispatched.metadata_ids, await yard.parked()) == ([], [])
    assert len(await store.ask(_ready)) == 1


async def test_everybody_who_asks_how_it_goes_hears_of_them(yard: Yard) -> None:
    await yard.queue("greeet")
    await yard.h.run_until_idle()

    found = await status(yard.app.context.store, yard.app.context.live)

    assert (found.parked, found.parked_trains) == (1, ("greeet",))
    assert problems(found) == ["1 entry is parked: no live worker accepts train 'greeet'"]
    assert health_of(found).condition is Condition.DEGRADED


async def test_a_parked_entry_can_be_withdrawn_and_triggering_finds_it(yard: Yard) -> None:
    entry = await yard.queue("greeet")
    await yard.h.run_until_idle()

    assert await yard.app.work_queue.cancel([entry.id]) == 1
    await yard.register("greeet")
    await yard.h.run_until_idle()

    assert await yard.app.executions.list() == []
