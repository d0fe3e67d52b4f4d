"""Triggering a manifest: an extra run beside its schedule."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import ORDERS, USERS, Railway, Table, in_memory, queued, row, rows
from tests.support.running import run_queued

from trax import every, exclude
from trax.errors import DefinitionError
from trax.records import Origin
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


@pytest.fixture
def app(url: str) -> Railway:
    return Railway(url)


@pytest.fixture
async def h(app: Railway) -> AsyncGenerator[Harness]:
    async with Harness(app, now=NOON) as harness:
        yield harness


async def test_a_trigger_queues_the_manifests_own_input_and_priority(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(
        app.sync_table, "users", ORDERS, "on_demand", priority=7, timeout=timedelta(seconds=30)
    )
    await app.groups.update("users", priority=20)

    entry = await app.manifests.trigger("users")

    assert (entry.train, entry.manifest, entry.group) == ("sync", "users", "users")
    assert (entry.input, entry.priority, entry.origin) == ({"table": "orders"}, 7, Origin.TRIGGER)
    assert (entry.scheduled_at, entry.created_at) == (None, NOON)
    assert await queued(h) == [entry]
    (stored,) = await rows(h, "work_queue")
    assert (stored["group_priority"], stored["timeout_seconds"], stored["ready"]) == (20, 30, True)


async def test_a_trigger_starts_disabled_excluded_and_dead_lettered_manifests(
    app: Railway, h: Harness
) -> None:
    await app.manifests.schedule(app.sync_table, "disabled", USERS, FIVE_MINUTES, enabled=False)
    await app.manifests.schedule(
        app.sync_table, "excluded", USERS, FIVE_MINUTES, exclude=exclude.days_of_week(NOON.weekday())
    )
    await app.manifests.schedule(app.broken, "given-up", USERS, FIVE_MINUTES, max_retries=1)
    await h.run_until_idle()
    assert [letter.manifest for letter in await app.dead_letters.list()] == ["given-up"]
    assert [run.manifest for run in await app.executions.list(train="sync")] == []

    for external_id in ("disabled", "excluded", "given-up"):
        await app.manifests.trigger(external_id)

    assert [entry.manifest for entry in await queued(h)] == ["disabled", "excluded", "given-up"]
    assert await run_queued(h) == 3
    assert not (await app.manifests.get("disabled")).enabled


async def test_a_delayed_trigger_waits_while_the_schedule_continues(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)

    entry = await app.manifests.trigger("users", delay=timedelta(minutes=10))
    await h.run_until_idle()
    await h.advance(minutes=5)
    await h.run_until_idle()

    assert entry.scheduled_at == NOON + timedelta(minutes=10)
    assert await queued(h) == [entry]
    assert len(await app.executions.list(train="sync")) == 2

    await h.advance(minutes=5)
    await h.run_until_idle()

    assert len(await app.executions.list(train="sync")) == 4
    assert await queued(h) == []


async def test_a_second_trigger_returns_the_first_entry(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, "on_demand")

    first = await app.manifests.trigger("users")
    second = await app.manifests.trigger("users")

    assert first == second
    assert await queued(h) == [first]
    await run_queued(h)
    assert (await app.manifests.trigger("users")).id != first.id


@in_memory
async def test_a_trigger_returns_the_entry_queued_by_the_schedule(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    await h.cycle("manifest_manager")

    entry = await app.manifests.trigger("users")

    assert (entry.origin, await queued(h)) == (Origin.SCHEDULE, [entry])


async def test_a_trigger_does_not_return_a_delayed_entry(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, "on_demand")
    later = await app.manifests.trigger("users", delay=timedelta(hours=1))

    now = await app.manifests.trigger("users")

    assert await queued(h) == [later, now]


async def test_concurrent_triggers_share_one_entry(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, "on_demand")

    entries = await asyncio.gather(*(app.manifests.trigger("users") for _ in range(8)))

    assert len({entry.id for entry in entries}) == 1
    assert len(await queued(h)) == 1


@in_memory
@pytest.mark.parametrize("delay", [5, timedelta(seconds=-1)])
async def test_an_invalid_delay_is_refused(app: Railway, h: Harness, delay: Any) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, "on_demand")

    with pytest.raises(DefinitionError, match="delay must be a timedelta"):
        await app.manifests.trigger("users", delay=delay)

    assert await queued(h) == []


@in_memory
async def test_a_trigger_moves_the_interval_only_by_its_success(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    await h.run_until_idle()
    await h.advance(minutes=3)
    planned = (await row(h, "users"))["next_due_at"]

    await app.manifests.trigger("users")
    assert (await row(h, "users"))["next_due_at"] == planned == NOON + timedelta(minutes=5)
    await run_queued(h)

    users = await app.manifests.get("users")
    assert (users.last_successful_run, users.next_due_at) == (h.now, h.now + timedelta(minutes=5))


@in_memory
async def test_a_triggered_run_starts_its_dependents(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "parent", USERS, "on_demand")
    await app.manifests.schedule_dependent(app.sync_table, "child", USERS, "parent")
    await app.manifests.trigger("parent")

    await h.run_until_idle()

    assert (await app.manifests.get("child")).last_successful_run == NOON


@in_memory
async def test_a_trigger_of_a_once_manifest_is_its_only_run(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_once(app.sync_table, "once", USERS, timedelta(hours=1))
    await app.manifests.trigger("once")
    await h.run_until_idle()

    await h.advance(hours=2)
    await h.run_until_idle()

    assert len(await app.executions.list(train="sync")) == 1
    assert not (await app.manifests.get("once")).enabled


async def test_triggering_a_group_starts_all_manifests_that_may_start_by_themselves(
    app: Railway, h: Harness
) -> None:
    three = {name: Table(table=name) for name in ("1", "2", "3")}
    await app.manifests.schedule_many(app.sync_table, "sync", three, "on_demand")
    await app.manifests.schedule(app.sync_table, "disabled", USERS, FIVE_MINUTES, group="sync", enabled=False)
    await app.manifests.schedule_dependent(app.sync_table, "dependent", USERS, "sync-1", group="sync")
    await app.manifests.schedule_dependent(
        app.sync_table, "dormant", USERS, "sync-1", group="sync", dormant=True
    )
    await app.manifests.schedule(app.sync_table, "elsewhere", USERS, "on_demand")

    assert await app.groups.trigger("sync") == 3

    assert [entry.manifest for entry in await queued(h)] == ["sync-1", "sync-2", "sync-3"]


async def test_triggering_a_group_skips_manifests_already_queued(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_many(app.sync_table, "sync", {"1": USERS, "2": USERS}, "on_demand")
    await app.manifests.trigger("sync-1")

    assert await app.groups.trigger("sync") == 1
    assert await app.groups.trigger("sync") == 0

    assert [entry.manifest for entry in await queued(h)] == ["sync-1", "sync-2"]
