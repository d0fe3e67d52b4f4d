"""A user who may only enqueue can write any row into the queue, and stops no jobs of others."""

# ruff: noqa: S608 - the statements are made of constants

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.waiting import until

from trax import Trax
from trax.errors import RowsRefused
from trax.events import Topic
from trax.inspect.status import status
from trax.records import QueueStatus, State
from trax.records.status import Condition, health_of
from trax.store import workers
from trax.store.schema import tables
from trax.testing import Harness
from trax.worker import dispatcher
from trax.worker import loop as worker_loops

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection

    from trax.records.worker import FailingLoop

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
LATEST = "'2999-12-31T23:59:59.999999Z'"
RANDOM_TEXT = "(SELECT string_agg(md5(CAST(n AS text)), '') FROM generate_series(1, 2048) AS n)"
"""64 kB that cannot be compressed into an index."""


class Attacked(Harness):
    """An app, and whoever writes rows into its queue."""

    def __init__(self, url: str) -> None:
        super().__init__(Trax(url), now=NOON)

        @self.app.train
        async def work(number: int) -> int:
            return number

        assert work

    async def insert(self, **values: str) -> None:
        """Insert an entry with these values, which are expressions of SQL."""
        store = await self.app.context.store.open()
        await store.call(insert_entry, values)

    async def states(self) -> dict[Any, State]:
        return {run.input: run.state for run in await self.app.executions.list()}


def insert_entry(connection: Connection, values: dict[str, str]) -> None:
    row = {
        "created_at": "'2027-03-01T12:00:00.000000Z'",
        "ready": "true",
        "external_id": "'attack'",
        "train": "'work'",
        "input": "'1'",
        "origin": "'queue'",
        "status": "'queued'",
        **values,
    }
    table = tables(connection).work_queue.fullname
    connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})"))


@pytest.fixture
async def attacked(url: str) -> AsyncGenerator[Attacked]:
    async with asyncio.timeout(60), Attacked(url) as opened:
        yield opened


LONG = f"'{'x' * 201}'"
REFUSED: dict[str, dict[str, str]] = {
    "a long train": {"train": LONG},
    "a long external id": {"external_id": LONG},
    "a long unique key": {"unique_key": LONG},
    "a long former key": {"former_key": LONG},
    "created for ever": {"created_at": "'infinity'"},
    "created never": {"created_at": "'-infinity'"},
    "created in another age": {"created_at": "'9999-12-31T23:59:59.999999Z'"},
    "due for ever": {"scheduled_at": "'infinity'", "ready": "false"},
    "scheduled never": {"scheduled_for": "'-infinity'"},
    "parked for ever": {"parked": "'work'", "parked_at": "'infinity'", "ready": "false"},
    "a timeout below zero": {"timeout_seconds": "-1"},
    "an endless timeout": {"timeout_seconds": "1e300"},
    "parked and ready": {"parked": "'work'", "parked_at": "'2027-03-01T12:00:00.000000Z'"},
    "an attempt below one": {"attempt": "0"},
    "a dispatch below zero": {"dispatch_attempts": "-1"},
    "a priority beyond all": {"priority": "32"},
    "a group priority beyond all": {"group_priority": "32"},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
async def test_the_database_refuses_an_entry_beyond_all_bounds(
    attacked: Attacked, values: dict[str, str]
) -> None:
    with pytest.raises(RowsRefused):
        await attacked.insert(**values)

    assert await attacked.app.work_queue.list() == []


REFUSED_GROUPS = {
    "a long name": {"name": LONG},
    "retired for ever": {"retired_at": "'infinity'"},
    "edited for ever": {"edited_at": "'infinity'"},
    "a priority to apply that was never changed": {"apply_priority_at": "'2027-03-01T12:00:00.000000Z'"},
}


@pytest.mark.parametrize("values", REFUSED_GROUPS.values(), ids=REFUSED_GROUPS)
async def test_the_database_refuses_a_group_that_would_stop_the_manager(
    attacked: Attacked, values: dict[str, str]
) -> None:
    store = await attacked.app.context.store.open()

    with pytest.raises(RowsRefused):
        await store.call(insert_group, values)

    assert await attacked.app.groups.list() == []


def insert_group(connection: Connection, values: dict[str, str]) -> None:
    moment = "'2027-03-01T12:00:00.000000Z'"
    row = {"name": "'attack'", "created_at": moment, "updated_at": moment, **values}
    table = tables(connection).manifest_group.fullname
    connection.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(row.values())})"))


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("seconds", ["'NaN'", "'Infinity'", "'-Infinity'"])
async def test_the_database_refuses_a_timeout_that_is_no_number(attacked: Attacked, seconds: str) -> None:
    with pytest.raises(RowsRefused):
        await attacked.insert(timeout_seconds=seconds)


async def test_the_longest_names_that_a_caller_may_give_are_accepted_and_parked(attacked: Attacked) -> None:
    name = f"'{'ü' * 200}'"

    await attacked.insert(train=name, external_id=name, unique_key=name)
    await attacked.app.queue("work", 2)
    await attacked.run_until_idle()

    assert await attacked.states() == {2: State.COMPLETED}
    assert (await attacked.app.work_queue.list())[-1].status is QueueStatus.QUEUED


async def test_an_entry_of_the_far_future_does_not_date_the_others(attacked: Attacked) -> None:
    await attacked.insert(created_at=LATEST)
    await attacked.app.queue("work", 2)

    await attacked.run_until_idle()

    runs = await attacked.app.executions.list()
    moments = {moment for run in runs for moment in (run.created_at, run.started_at, run.ended_at)}
    assert (await attacked.states(), moments) == ({1: State.COMPLETED, 2: State.COMPLETED}, {NOON})
    assert {entry.dispatched_at for entry in await attacked.app.work_queue.list()} == {NOON}


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_an_entry_that_cannot_be_parked_is_cancelled_and_the_others_continue(
    attacked: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a database whose schema refuses less than today's."""
    store = await attacked.app.context.store.open()
    await store.call(allow_long_names)
    await attacked.insert(train=RANDOM_TEXT)
    await attacked.app.queue("work", 2)
    await attacked.insert(train="'unknown'", external_id="'other'")

    await attacked.run_until_idle()

    entries = {entry.train[:7]: entry for entry in await attacked.app.work_queue.list()}
    assert await attacked.states() == {2: State.COMPLETED}
    assert entries["c4ca423"].status is QueueStatus.CANCELLED
    assert entries["unknown"].status is QueueStatus.QUEUED
    assert f"entry {entries['c4ca423'].id} was cancelled: it cannot be parked" in caplog.text


def allow_long_names(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE trax.work_queue DROP CONSTRAINT name_lengths"))


async def test_invented_train_names_do_not_fill_the_log(
    attacked: Attacked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number in range(30):
        await attacked.insert(train=f"'made-up-{number:02}'", external_id=f"'{number}'")

    await attacked.run_until_idle()
    warned = [line for line in caplog.messages if "no live worker" in line]
    for number in range(30, 60):
        await attacked.insert(train=f"'made-up-{number:02}'", external_id=f"'{number}'")
    await attacked.run_until_idle()
    later = [line for line in caplog.messages if "no live worker" in line]
    await attacked.advance(minutes=1)
    await attacked.insert(train="'made-up-99'", external_id="'99'")
    await attacked.run_until_idle()

    assert len(warned) == 11
    assert warned[-1] == "workers: no live worker accepts 20 more trains; their entries are parked"
    assert later == warned
    assert "train 'made-up-99'" in caplog.text


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_a_loop_whose_turns_fail_is_in_the_health_of_all(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RowsRefused("index row size exceeds the maximum")

    def failing_loops() -> list[FailingLoop]:
        return store.read(workers.load_failing_loops, alive_since=datetime(2000, 1, 1, tzinfo=UTC))

    app, other = Trax(url, heartbeat_interval=timedelta(seconds=0.2)), Trax(url)
    store, dispatch_now = other.context.store.open_blocking(), dispatcher.dispatch_now
    monkeypatch.setattr(dispatcher, "dispatch_now", fail)
    monkeypatch.setattr(worker_loops, "PAUSES", (0.01,))
    async with asyncio.timeout(300):
        await app.start("scheduler")
        try:
            app.context.events.emit(Topic.WORK_QUEUE)
            await asyncio.to_thread(until, lambda: bool(failing_loops()))
            health = health_of(await status(other.context.store, other.context.live))
            monkeypatch.setattr(dispatcher, "dispatch_now", dispatch_now)
            await asyncio.to_thread(until, lambda: not failing_loops())
        finally:
            await app.stop()
    app.close()
    other.close()

    assert health.condition is Condition.DEGRADED
    assert health.problems[0].startswith("loop job_dispatcher of ")
    assert "fails: RowsRefused: index row size exceeds the maximum" in health.problems[0]
