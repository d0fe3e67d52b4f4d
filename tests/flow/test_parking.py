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


class ParkingSetup:
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
async def setup(url: str) -> AsyncGenerator[ParkingSetup]:
    async with Harness(Trax(url, max_active_jobs=2)) as h:
        yield ParkingSetup(h)


async def test_entries_of_an_unserved_train_occupy_no_slot_and_delay_no_others(
    setup: ParkingSetup, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        await setup.queue("greeet", priority=31)
    await setup.app.queue(setup.greet, "Ada")

    await setup.h.run_until_idle()

    assert (setup.ran, await setup.places(), len(await setup.parked())) == (["Ada"], 0, 10)
    said = [record.message for record in caplog.records if "no live worker" in record.message]
    assert len(said) == 1
    assert "no live worker accepts train 'greeet'; did you mean 'greet'?" in said[0]


async def test_a_flood_of_unserved_entries_is_parked_once_and_not_read_again(setup: ParkingSetup) -> None:
    store = await setup.app.context.store.open()
    await setup.queue("gone")
    await setup.app.queue_many(setup.greet, ["first"] * 3)
    await store.call(_flood, 2_000)
    await setup.app.queue(setup.greet, "last")

    for _ in range(2):
        await setup.h.cycle("job_dispatcher")

    assert len(await store.ask(_ready)) + await setup.places() == 4
    await setup.h.run_until_idle()
    assert sorted(setup.ran) == ["first", "first", "first", "last"]


def _flood(connection: Connection, count: int) -> None:

    queue = tables(connection).work_queue
    (row,) = connection.execute(queue.select().where(queue.c.train == "gone")).mappings()
    rows = [{**row, "id": 10_000 + n, "external_id": f"gone-{n}"} for n in range(count)]
    connection.execute(queue.insert(), rows)


def _ready(connection: Connection) -> list[int]:

    queue = tables(connection).work_queue
    return list(connection.execute(queue.select().where(queue.c.status == "queued", queue.c.ready)).scalars())


async def test_parked_entries_are_admitted_when_a_worker_with_their_train_registers(
    setup: ParkingSetup,
) -> None:
    entry = await setup.queue("bake")
    await setup.h.run_until_idle()
    assert await setup.parked() == [entry.id]

    await setup.register("bake")
    while (await setup.h.cycle("job_dispatcher")).run_again:
        pass

    (run,) = await setup.app.executions.list()
    assert (run.train, run.state, await setup.parked()) == ("bake", State.PENDING, [])


async def test_a_worker_is_known_by_the_names_its_trains_had_before(setup: ParkingSetup) -> None:
    await setup.queue("old")

    await setup.register("new", aliases='["old"]')
    await setup.h.cycle("job_dispatcher")

    assert [run.train for run in await setup.app.executions.list()] == ["old"]


async def test_a_train_handed_over_by_another_server_is_admitted_for_its_submitter(
    setup: ParkingSetup,
) -> None:
    await setup.queue("far")

    await setup.register(kind="scheduler", concurrency=0, routes='{"far": "cluster"}')
    await setup.h.cycle("job_dispatcher")

    (run,) = await setup.app.executions.list()
    assert (run.train, run.submitter) == ("far", "cluster")


async def test_entries_of_an_unserved_group_are_parked(setup: ParkingSetup) -> None:
    await setup.register("bake", groups=["day"])
    night = await setup.queue("bake", group="night")
    alone = await setup.queue("bake")
    day = await setup.queue("bake", group="day")

    await setup.h.cycle("job_dispatcher")
    assert await setup.parked() == [alone.id, night.id]
    assert [run.external_id for run in await setup.app.executions.list()] == [day.external_id]

    await setup.register("bake", groups=["night"])
    await setup.h.advance(seconds=3)
    await setup.h.cycle("job_dispatcher")
    await setup.h.cycle("job_dispatcher")
    assert await setup.parked() == [alone.id]


async def test_an_expired_parked_entry_becomes_a_dead_letter_that_suggests_a_train(
    setup: ParkingSetup,
) -> None:
    await setup.queue("greeet", "Ada")
    await setup.h.run_until_idle()

    await setup.h.advance(minutes=19)
    await setup.h.run_until_idle()
    assert await setup.app.dead_letters.list() == []
    await setup.h.advance(minutes=2)
    await setup.h.run_until_idle()

    (letter,) = await setup.app.dead_letters.list()
    assert (letter.train, letter.input, await setup.parked()) == ("greeet", "Ada", [])
    assert "no live worker accepts train 'greeet'; did you mean 'greet'?" in letter.reason
    assert await setup.app.executions.list() == []


async def test_the_time_an_entry_stays_parked_is_a_setting(url: str) -> None:
    async with Harness(Trax(url, unknown_train_timeout=timedelta(seconds=30))) as h:
        setup = ParkingSetup(h)
        await setup.queue("gone")
        await h.run_until_idle()

        await h.advance(seconds=31)
        await h.run_until_idle()

        assert len(await setup.app.dead_letters.list()) == 1


async def test_a_manifest_whose_train_is_gone_gets_one_dead_letter(setup: ParkingSetup) -> None:
    old = Trax("memory://")

    @old.train
    async def gone(_name: str) -> None: ...

    old.schedule(gone, "nightly", "Ada", every(minutes=1), group=Group("night"))
    store = await setup.app.context.store.open()
    settings = setup.app.context.settings

    await store.call(schedule, store, old.context.declarations.timetable(), settings)
    for _ in range(30):
        await setup.h.run_until_idle()
        await setup.h.advance(minutes=1)

    (letter,) = await setup.app.dead_letters.list()
    assert (letter.manifest, letter.train) == ("nightly", "gone")
    assert "no live worker accepts train 'gone'" in letter.reason


async def test_pending_runs_are_requeued_when_their_last_worker_is_gone(setup: ParkingSetup) -> None:
    worker_id = await setup.register("bake")
    entries = [await setup.queue("bake") for _ in range(2)]
    await setup.h.cycle("job_dispatcher")
    assert await setup.places() == 2
    store = await setup.app.context.store.open()
    await store.call(workers.remove, worker_id)
    await setup.app.queue(setup.greet, "Ada")

    await setup.h.advance(seconds=21)
    await setup.h.run_until_idle()

    assert (setup.ran, await setup.places()) == (["Ada"], 0)
    assert await setup.parked() == [entry.id for entry in reversed(entries)]
    stranded = [run for run in await setup.app.executions.list() if run.train == "bake"]
    assert {(run.state, run.failure_exception) for run in stranded} == {(State.CANCELLED, "NoWorker")}


async def test_without_any_worker_entries_stay_in_the_queue(setup: ParkingSetup) -> None:
    await setup.queue("bake")
    store = await setup.app.context.store.open()

    dispatched = await store.call(dispatch_now, store, setup.app.context, fleets=FleetCache())

    assert (dispatched.metadata_ids, await setup.parked()) == ([], [])
    assert len(await store.ask(_ready)) == 1


async def test_status_and_health_report_parked_entries(setup: ParkingSetup) -> None:
    await setup.queue("greeet")
    await setup.h.run_until_idle()

    found = await status(setup.app.context.store, setup.app.context.live)

    assert (found.parked, found.parked_trains) == (1, ("greeet",))
    assert problems(found) == ["1 entry is parked: no live worker accepts train 'greeet'"]
    assert health_of(found).condition is Condition.DEGRADED


async def test_a_parked_entry_can_be_withdrawn_and_triggering_finds_it(setup: ParkingSetup) -> None:
    entry = await setup.queue("greeet")
    await setup.h.run_until_idle()

    assert await setup.app.work_queue.cancel([entry.id]) == 1
    await setup.register("greeet")
    await setup.h.run_until_idle()

    assert await setup.app.executions.list() == []
