"""`app.verify` on waiting jobs: unexplained waits are found, and entries in flight are not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from sqlalchemy import update
from tests.support.edited_history import NOON, add_server, add_worker

from trax import Trax
from trax.records.verification import FindingKind
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection

    from trax.records.verification import Verification

WAITS = FindingKind.WAITS_TOO_LONG
MINUTE = timedelta(minutes=1)


class Queue:
    """An app with a server and an idle worker, which do nothing: the test says what they have done."""

    def __init__(self, harness: Harness) -> None:
        self.app = harness.app
        self.harness = harness

    async def queue(self, count: int = 1, **options: Any) -> list[int]:
        return [entry.id for entry in await self.app.queue_many("work", range(count), **options)]

    async def wait(self, minutes: float) -> None:
        """Time passes, in which the servers send heartbeats, but dispatch nothing."""
        await self.harness.advance(minutes=minutes)
        self._write("worker", heartbeat_at=self.harness.now)

    async def run(self) -> None:
        """One job is admitted, and runs for a second."""
        await self.harness.cycle("job_dispatcher")
        await self.harness.work()

    def edit(self, table: str, row_id: int, **values: Any) -> None:
        self._write(table, row_id, **values)

    def _write(self, table: str, row_id: int | None = None, **values: Any) -> None:
        def write(connection: Connection) -> None:
            of = getattr(tables(connection), table)
            where = [] if row_id is None else [of.c.id == row_id]
            connection.execute(update(of).where(*where).values(**values))

        self.app.context.store.open_blocking().run(write)

    async def verify(self) -> tuple[list[tuple[int, ...]], int]:
        """The ids of what waits too long, and how many cases are not decided."""
        found: Verification = await self.app.verify()
        assert {each.kind for each in found.findings} <= {WAITS}, found.findings
        return [each.ids for each in found.findings], found.undecided.get(WAITS, 0)


@pytest_asyncio.fixture
async def idle(url: str) -> AsyncGenerator[Queue]:
    app = Trax(url, max_active_jobs=10)

    @app.train(group="etl")
    def work(number: int) -> int:
        return number

    app.group("etl", max_active_jobs=1)
    async with Harness(app, now=NOON) as harness:
        add_server(app, harness)
        add_worker(app, harness)
        await app.queue(work, 0)
        await harness.run_until_idle()
        yield Queue(harness)


async def test_a_ready_entry_that_is_not_dispatched_is_found(idle: Queue) -> None:
    ids = await idle.queue()
    await idle.wait(9)
    in_time = await idle.verify()
    await idle.wait(2)

    assert in_time == ([], 0)
    assert await idle.verify() == ([tuple(ids)], 0)


async def test_a_delayed_entry_that_is_not_promoted_is_found(idle: Queue) -> None:
    ids = await idle.queue(delay=5 * MINUTE)
    await idle.wait(14)
    in_time = await idle.verify()
    await idle.wait(2)

    assert in_time == ([], 0)
    assert await idle.verify() == ([tuple(ids)], 0)


@pytest.mark.parametrize(
    ("parked", "minutes", "is_found"),
    [("work", 11, True), ("unknown", 11, False), ("unknown", 31, True)],
    ids=["a worker accepts it", "no worker accepts it", "it should have been given up"],
)
async def test_a_parked_entry_waits_for_a_worker_but_not_for_ever(
    idle: Queue, parked: str, minutes: int, *, is_found: bool
) -> None:
    [entry] = await idle.queue()
    idle.edit("work_queue", entry, ready=False, parked=parked, parked_at=idle.harness.now)
    await idle.wait(minutes)

    assert await idle.verify() == ([(entry,)] if is_found else [], 0)


async def test_a_pending_run_that_no_worker_claims_is_found(idle: Queue) -> None:
    await idle.queue()
    [run] = (await idle.harness.cycle("job_dispatcher")).metadata_ids
    await idle.wait(11)

    assert await idle.verify() == ([(run,)], 0)


async def test_a_run_that_a_submitter_keeps_for_too_long_is_found(idle: Queue) -> None:
    await idle.queue()
    [run] = (await idle.harness.cycle("job_dispatcher")).metadata_ids
    idle.edit("metadata", run, submitter="sqs", submitted_at=idle.harness.now)
    await idle.wait(29)
    in_time = await idle.verify()
    await idle.wait(2)

    assert in_time == ([], 0)
    assert await idle.verify() == ([(run,)], 0)


async def test_a_full_group_or_a_busy_worker_explains_the_wait(idle: Queue) -> None:
    first, second = await idle.queue(2)
    [run] = (await idle.harness.cycle("job_dispatcher")).metadata_ids
    idle.edit("metadata", run, state="in_progress", started_at=idle.harness.now, worker_id=2)
    await idle.wait(11)

    assert first < second
    assert await idle.verify() == ([], 0)


async def test_a_disabled_group_explains_the_wait(idle: Queue) -> None:
    await idle.app.groups.update("etl", enabled=False)
    await idle.queue()
    await idle.wait(12)

    assert await idle.verify() == ([], 0)


async def test_after_a_change_of_its_limit_it_is_not_decided(idle: Queue) -> None:
    await idle.queue()
    await idle.wait(11)
    await idle.app.groups.update("etl", max_active_jobs=5)

    assert await idle.verify() == ([], 1)


async def test_without_a_server_it_is_not_decided(idle: Queue) -> None:
    await idle.queue()
    await idle.queue(delay=MINUTE)
    await idle.harness.advance(minutes=20)

    assert await idle.verify() == ([], 2)


async def test_an_entry_that_has_just_come_back_is_in_flight(idle: Queue) -> None:
    """Its run was interrupted: it is older than its wait, and a place was free all the time."""
    await idle.app.groups.update("etl", max_active_jobs=5)
    [entry] = await idle.queue()
    [run] = (await idle.harness.cycle("job_dispatcher")).metadata_ids
    await idle.wait(30)
    values = {"state": "cancelled", "ended_at": idle.harness.now, "failure_exception": "Interrupted"}
    idle.edit("metadata", run, **values)
    idle.edit("work_queue", entry, status="queued", metadata_id=None, dispatched_at=None)
    in_flight = await idle.verify()
    await idle.wait(11)

    assert in_flight == ([], 0)
    assert await idle.verify() == ([(entry,)], 0)


async def test_an_entry_that_others_overtake_is_found_although_all_is_busy(idle: Queue) -> None:
    """It is hidden from the gate, while later jobs of its train and group go on."""
    [hidden] = await idle.queue()
    idle.edit("work_queue", hidden, status="cancelled")
    await idle.wait(75)
    for _ in range(3):
        await idle.queue()
        await idle.run()
        await idle.wait(0.2)
    idle.edit("work_queue", hidden, status="queued")

    assert await idle.verify() == ([(hidden,)], 0)
