"""Scheduling while the app runs: the same verbs, each one transaction, and what operators do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import (
    ORDERS,
    USERS,
    Railway,
    Table,
    changed_rows,
    deploy,
    group_names,
    in_memory,
    insert,
    names,
    queued,
    row,
    rows,
)
from tests.support.running import run_queued

from trax import Group, InvalidInput, Item, NotFound, cron, every
from trax.errors import DefinitionError, StoreError
from trax.store.manifests import manifest_seed
from trax.testing import Harness
from trax.train import train_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
THREE = {name: Table(table=name) for name in ("1", "2", "3")}


@pytest.fixture
def app(url: str) -> Railway:
    return Railway(url)


@pytest.fixture
async def h(app: Railway) -> AsyncGenerator[Harness]:
    async with Harness(app, now=NOON) as harness:
        yield harness


# Writing


async def test_a_manifest_made_at_run_time_runs_like_a_declared_one(app: Railway, h: Harness) -> None:
    made = await app.manifests.schedule(
        app.sync_table, "users", USERS, FIVE_MINUTES, group="etl", max_retries=7
    )

    assert (made.external_id, made.group, made.max_retries) == ("users", "etl", 7)
    assert made == await app.manifests.get("users")
    assert (await row(h, "users"))["origin"] == "runtime"
    await h.run_until_idle()
    assert (await app.manifests.get("users")).last_successful_run == NOON


async def test_a_cron_schedule_made_or_edited_at_run_time_starts_nothing_by_itself(
    app: Railway, h: Harness
) -> None:
    made = await app.manifests.schedule(app.sync_table, "users", USERS, cron("30 * * * *"))
    eager = await app.manifests.schedule(app.sync_table, "eager", USERS, cron("30 * * * *"), start="now")
    assert (made.next_due_at, eager.next_due_at) == (NOON + timedelta(minutes=30), NOON)
    await h.run_until_idle()
    await h.advance(minutes=40)

    await app.manifests.schedule(app.sync_table, "users", USERS, cron("45 * * * *"))
    await app.manifests.schedule(app.sync_table, "eager", USERS, cron("45 * * * *"), start="now")
    await h.run_until_idle()
    assert [run.manifest for run in await app.executions.list(train="sync")] == ["eager"]
    await h.advance(minutes=5)
    await h.run_until_idle()

    runs = await app.executions.list(train="sync")
    assert sorted(str(run.manifest) for run in runs) == ["eager", "eager", "users"]


async def test_scheduling_it_again_keeps_its_id_and_history(app: Railway, h: Harness) -> None:
    before = await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    await h.run_until_idle()
    await app.manifests.disable("users")

    after = await app.manifests.schedule(app.sync_table, "users", ORDERS, cron("@daily"), max_retries=1)

    assert (after.id, after.last_successful_run, after.enabled) == (before.id, NOON, False)
    assert (after.input, after.schedule, after.max_retries) == ({"table": "orders"}, "0 0 * * *", 1)


@in_memory
async def test_a_batch_is_written_and_returned_in_its_order(app: Railway, h: Harness) -> None:
    made = await app.manifests.schedule_many(
        app.sync_table,
        "sync",
        [Item("b", USERS), Item("a", ORDERS)],
        FIVE_MINUTES,
        configure_each=lambda item: {"priority": 9} if item.id == "a" else None,
    )

    assert [(each.external_id, each.priority) for each in made] == [("sync-b", 0), ("sync-a", 9)]
    assert await names(h) == ["sync-a", "sync-b"]


async def test_manifests_left_out_of_a_batch_are_retired_with_their_history(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_many(app.broken, "sync", THREE, FIVE_MINUTES, max_retries=1)
    await app.manifests.schedule(app.broken, "sync-table", USERS, FIVE_MINUTES, max_retries=1)
    await h.run_until_idle()
    await app.manifests.trigger("sync-3")
    before = await app.manifests.list()

    two = {"1": USERS, "2": USERS}
    made = await app.manifests.schedule_many(app.broken, "sync", two, FIVE_MINUTES, max_retries=1)

    assert [each.id for each in made] == [each.id for each in before[:2]]
    assert await names(h) == ["sync-1", "sync-2", "sync-table"]
    kept = {"sync-1", "sync-2", "sync-3", "sync-table"}
    assert {letter.manifest for letter in await app.dead_letters.list()} == kept
    assert {run.manifest for run in await app.executions.list(train="broken")} == kept
    assert [each.external_id for each in await app.manifests.list(retired=True)] == ["sync-3"]
    assert await queued(h) == []


async def test_an_empty_batch_changes_and_prunes_nothing(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_many(app.sync_table, "sync", THREE, FIVE_MINUTES)

    with changed_rows(await app.context.store.open()) as changes:
        made = await app.manifests.schedule_many(app.sync_table, "sync", {}, every(hours=1))

    assert (made, changes) == ([], [])
    assert await names(h) == ["sync-1", "sync-2", "sync-3"]


@in_memory
async def test_a_batch_without_a_name_prunes_nothing(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_many(app.sync_table, None, {"a": USERS, "b": USERS}, FIVE_MINUTES)

    made = await app.manifests.schedule_many(app.sync_table, None, {"c": USERS}, FIVE_MINUTES)

    assert [each.group for each in made] == ["c"]
    assert await names(h) == ["a", "b", "c"]


async def test_one_wrong_item_leaves_nothing_of_its_batch(app: Railway, h: Harness) -> None:
    wrong: Any = {"1": USERS, "2": "not a table"}

    with pytest.raises(InvalidInput, match="manifest 'sync-2'"):
        await app.manifests.schedule_many(app.sync_table, "sync", wrong, FIVE_MINUTES, group="etl")

    assert (await names(h), await group_names(h)) == ([], [])


async def test_a_batch_that_the_database_breaks_off_leaves_nothing(
    app: Railway, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.manifests.schedule_many(app.sync_table, "sync", THREE, FIVE_MINUTES)
    before = await rows(h, "manifest"), await rows(h, "manifest_group")

    def break_off(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(manifest_seed, "retire", break_off)
    with pytest.raises(StoreError, match="the disk is full"):
        await app.manifests.schedule_many(
            app.sync_table, "sync", {"1": ORDERS, "9": ORDERS}, FIVE_MINUTES, group=Group("etl", priority=3)
        )

    assert (await rows(h, "manifest"), await rows(h, "manifest_group")) == before


async def test_a_once_manifest_waits_for_its_moment_and_runs_once(app: Railway, h: Harness) -> None:
    made = await app.manifests.schedule_once(app.sync_table, "once", USERS, timedelta(minutes=10))
    assert (made.schedule_type, made.schedule) == ("once", "once at 2027-03-01 12:10:00 UTC")

    await h.advance(minutes=9, seconds=59)
    await h.run_until_idle()
    assert await app.executions.list(train="sync") == []
    await h.advance(seconds=1)
    await h.run_until_idle()
    await h.advance(days=1)
    await h.run_until_idle()

    once = await app.manifests.get("once")
    assert (once.enabled, once.last_successful_run) == (False, NOON + timedelta(minutes=10))
    assert len(await app.executions.list(train="sync")) == 1


async def test_scheduling_a_once_manifest_again_before_it_ran_moves_it(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_once(app.sync_table, "once", USERS, timedelta(minutes=10))
    await h.advance(minutes=5)

    await app.manifests.schedule_once(app.sync_table, "once", USERS, timedelta(minutes=10))

    assert (await row(h, "once"))["scheduled_at"] == NOON + timedelta(minutes=15)
    await h.advance(minutes=9)
    await h.cycle("manifest_manager")
    assert await queued(h) == []


@in_memory
async def test_a_once_manifest_needs_no_name(app: Railway, h: Harness) -> None:
    first = await app.manifests.schedule_once(app.sync_table, None, USERS)
    second = await app.manifests.schedule_once(app.sync_table, None, USERS)

    assert first.external_id.startswith("once-")
    assert len(first.external_id) == len("once-") + 32
    assert len({first.external_id, second.external_id}) == 2
    await h.run_until_idle()
    assert len(await app.executions.list(train="sync")) == 2


async def test_a_dependent_made_at_run_time_follows_its_parent(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "parent", USERS, FIVE_MINUTES)

    child = await app.manifests.schedule_dependent(app.sync_table, "child", ORDERS, "parent", priority=3)

    assert (child.depends_on, child.schedule_type, child.priority) == ("parent", "dependent", 3)
    await h.run_until_idle()
    assert [run.manifest for run in await app.executions.list(train="sync")] == ["child", "parent"]


# What is refused


async def test_an_unknown_parent_is_refused_and_nothing_is_written(app: Railway, h: Harness) -> None:
    with pytest.raises(DefinitionError, match=r"'child' depends on 'nobody', .*schedule the parent first"):
        await app.manifests.schedule_dependent(app.sync_table, "child", USERS, "nobody", group="new")

    assert (await names(h), await group_names(h)) == ([], [])


async def test_manifests_cannot_be_made_to_wait_in_a_circle(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "a", USERS, FIVE_MINUTES, group="g")
    await app.manifests.schedule_dependent(app.sync_table, "b", USERS, "a", group="g")
    await app.manifests.schedule_dependent(app.sync_table, "c", USERS, "b", group="g")
    before = await rows(h, "manifest")

    with pytest.raises(DefinitionError, match="in a cycle: a -> b -> c -> a"):
        await app.manifests.schedule_dependent(app.sync_table, "a", USERS, "c", group="g")

    assert await rows(h, "manifest") == before


@in_memory
async def test_a_circle_through_what_code_declares_is_refused(app: Railway, h: Harness) -> None:
    code = Railway()
    code.schedule(code.sync_table, "a", USERS, FIVE_MINUTES, group="g").then_include(
        code.sync_table, "b", USERS, group="g"
    )
    await deploy(h, code)

    with pytest.raises(DefinitionError, match="a -> b -> a"):
        await app.manifests.schedule_dependent(app.sync_table, "a", USERS, "b", group="g")


async def test_groups_cannot_be_made_to_wait_in_a_circle(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "a1", USERS, FIVE_MINUTES, group="A")
    await app.manifests.schedule_dependent(app.sync_table, "b1", USERS, "a1", group="B")
    await app.manifests.schedule(app.sync_table, "b2", USERS, FIVE_MINUTES, group="B")

    with pytest.raises(DefinitionError, match=r"groups must form a DAG.*A -> B -> A"):
        await app.manifests.schedule_dependent(app.sync_table, "a2", USERS, "b2", group="A")

    assert await names(h) == ["a1", "b1", "b2"]


@in_memory
async def test_a_manifest_cannot_be_moved_to_a_group_that_closes_a_circle(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "a1", USERS, FIVE_MINUTES, group="A")
    await app.manifests.schedule_dependent(app.sync_table, "b1", USERS, "a1", group="B")
    await app.manifests.schedule(app.sync_table, "c1", USERS, FIVE_MINUTES, group="C")
    await app.manifests.schedule_dependent(app.sync_table, "a2", USERS, "c1", group="A")

    with pytest.raises(DefinitionError, match="A -> B -> A"):
        await app.manifests.schedule(app.sync_table, "c1", USERS, FIVE_MINUTES, group="B")

    assert [each.external_id for each in await app.manifests.list(group="C")] == ["c1"]
    assert len(await names(h)) == 4


@in_memory
async def test_a_train_the_app_does_not_know_cannot_be_scheduled(app: Railway, h: Harness) -> None:
    @train_of
    async def stranger(job: Table) -> str:
        return job.table

    with pytest.raises(DefinitionError, match="train 'stranger' is not registered in this app"):
        await app.manifests.schedule(stranger, "users", USERS, FIVE_MINUTES)
    with pytest.raises(DefinitionError, match="train 'stranger' is not registered in this app"):
        app.schedule(stranger, "users", USERS, FIVE_MINUTES)

    assert await names(h) == []


async def test_verbs_on_an_unknown_manifest_raise_not_found(app: Railway, h: Harness) -> None:
    verbs = app.manifests

    for verb in (verbs.enable, verbs.disable, verbs.trigger, verbs.cancel, verbs.get, verbs.delete):
        with pytest.raises(NotFound, match="there is no manifest 'nobody'"):
            await verb("nobody")

    assert (await names(h), await queued(h)) == ([], [])


async def test_verbs_on_an_unknown_group_raise_not_found(app: Railway, h: Harness) -> None:
    for asked in (
        app.groups.get("nobody"),
        app.groups.update("nobody", priority=3),
        app.groups.update("nobody"),
        app.groups.trigger("nobody"),
        app.groups.cancel("nobody"),
    ):
        with pytest.raises(NotFound, match="there is no group 'nobody'"):
            await asked

    assert await group_names(h) == []


# What operators do


async def test_a_disabled_manifest_rests_and_continues_when_enabled(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    await app.manifests.disable("users")
    await h.advance(days=1)
    await h.run_until_idle()
    assert await app.executions.list(train="sync") == []

    await app.manifests.enable("users")
    await h.run_until_idle()

    assert (await app.manifests.get("users")).last_successful_run == h.now


@in_memory
async def test_a_disabled_group_rests_and_continues_when_enabled(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(
        app.sync_table, "users", USERS, FIVE_MINUTES, group=Group("etl", enabled=False)
    )
    await h.run_until_idle()
    assert await app.executions.list(train="sync") == []

    await app.groups.update("etl", enabled=True)
    await h.run_until_idle()

    assert (await app.manifests.get("users")).last_successful_run == NOON


async def test_a_groups_new_priority_moves_what_is_queued_but_not_what_was(app: Railway, h: Harness) -> None:
    await app.queue(app.sync_table, USERS, group="etl")
    await run_queued(h)
    await app.queue(app.sync_table, USERS, group="etl")
    await app.queue(app.sync_table, USERS, group="etl", delay=timedelta(hours=1))
    await app.queue(app.sync_table, USERS, group="other")

    updated = await app.groups.update("etl", priority=20)

    assert updated.priority == 20
    assert [each["group_priority"] for each in await rows(h, "work_queue")] == [0, 20, 20, 0]


async def test_a_group_is_changed_field_by_field(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(
        app.sync_table, "users", USERS, FIVE_MINUTES, group=Group("etl", max_active_jobs=3, priority=4)
    )

    limited = await app.groups.update("etl", max_active_jobs=5)
    free = await app.groups.update("etl", max_active_jobs=None)

    assert (limited.max_active_jobs, limited.priority) == (5, 4)
    assert (free.max_active_jobs, free.priority, free.enabled) == (None, 4, True)
    assert free == await app.groups.get("etl")
    assert [group.name for group in await app.groups.list(after="eta", limit=1)] == ["etl"]
    assert await app.groups.list(after=(await group_names(h))[-1]) == []


async def test_manifests_are_listed_by_what_they_are(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "a", USERS, FIVE_MINUTES, group="etl")
    await app.manifests.schedule(app.broken, "b", USERS, cron("@daily"), group="etl", enabled=False)
    await app.manifests.schedule_dependent(app.sync_table, "c", USERS, "a", dormant=True)

    async def listed(**wanted: Any) -> list[str]:
        return [each.external_id for each in await h.app.manifests.list(**wanted)]

    assert await listed() == ["a", "b", "c"]
    assert await listed(group="etl") == ["a", "b"]
    assert await listed(train="sync") == ["a", "c"]
    assert await listed(enabled=False) == ["b"]
    assert await listed(schedule_type="dormant_dependent") == ["c"]
    assert await listed(group="etl", enabled=True, schedule_type="interval") == ["a"]
    assert await listed(group="elsewhere") == []


async def test_a_long_list_is_read_page_by_page(app: Railway, h: Harness) -> None:
    await app.manifests.schedule_many(
        app.sync_table, None, {f"m{each}": USERS for each in range(7)}, FIVE_MINUTES
    )

    pages: list[list[str]] = []
    page = await app.manifests.list(limit=3)
    while page:
        pages.append([each.external_id for each in page])
        await app.manifests.schedule(app.sync_table, "a-late-one", USERS, FIVE_MINUTES)
        page = await app.manifests.list(limit=3, after=page[-1].external_id)

    assert pages == [["m0", "m1", "m2"], ["m3", "m4", "m5"], ["m6"]]
    assert len(await names(h)) == 8


async def test_deleting_a_manifest_retires_it_and_keeps_its_history(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.broken, "goes", USERS, FIVE_MINUTES, max_retries=1)
    await app.manifests.schedule(app.sync_table, "stays", USERS, FIVE_MINUTES)
    await app.manifests.schedule_dependent(app.sync_table, "child", USERS, "goes")
    await h.run_until_idle()
    (letter,) = await app.dead_letters.list()
    await app.dead_letters.requeue([letter.id])
    await run_queued(h)
    await app.manifests.trigger("goes")
    run = (await app.executions.list(train="broken"))[0]
    await insert(
        h, "log", metadata_id=run.id, created_at=NOON, level="information", logger="test", message="hello"
    )

    await app.manifests.delete("goes")

    goes = await app.manifests.get("goes")
    assert await names(h) == ["child", "stays"]
    assert goes.retired_at == NOON
    assert (await app.manifests.get("child")).depends_on == "goes"
    assert (len(await app.dead_letters.list()), len(await rows(h, "log"))) == (1, 1)
    assert [run.manifest for run in await app.executions.list(train="broken")] == ["goes", "goes"]
    assert await queued(h) == []


async def test_a_run_whose_manifest_is_deleted_meanwhile_is_recorded(app: Railway, h: Harness) -> None:
    @app.train
    async def vanish(name: str) -> str:
        await app.manifests.delete(name)
        return name

    await app.manifests.schedule(vanish, "mine", "mine", FIVE_MINUTES)

    await h.run_until_idle()

    (run,) = await app.executions.list(train="vanish")
    mine = await app.manifests.get("mine")
    assert (await names(h), run.state, run.manifest) == ([], "completed", "mine")
    assert (mine.last_successful_run, mine.next_due_at, mine.retired_at) == (NOON, None, NOON)


async def test_cancel_flags_only_what_is_running(app: Railway, h: Harness) -> None:
    users = await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES, group="etl")
    group = await app.groups.get("etl")
    state_and_moments: list[dict[str, Any]] = [
        {"state": "pending"},
        {"state": "in_progress", "started_at": NOON},
        {"state": "in_progress", "started_at": NOON},
        {"state": "completed", "started_at": NOON, "ended_at": NOON},
    ]
    for number, values in enumerate(state_and_moments):
        await insert(
            h,
            "metadata",
            external_id=f"{number:032}",
            train="sync",
            created_at=NOON,
            manifest_id=users.id,
            group_id=group.id,
            **values,
        )

    assert await app.manifests.cancel("users") == 2
    assert [each["cancel_requested"] for each in await rows(h, "metadata")] == [False, True, True, False]
    assert await app.groups.cancel("etl") == 0
