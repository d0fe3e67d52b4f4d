"""Seeding: the rows of the database after an app has started with its declarations."""

from __future__ import annotations

import logging
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

from trax import Group, Item, Retry, cron, every, exclude, fire_all
from trax.errors import DefinitionError
from trax.records import Origin
from trax.schedule import next_occurrence
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from trax.records.schedule import Cron

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
TABLES = {name: Table(table=name) for name in ("1", "2", "3")}


@pytest.fixture
def app(url: str) -> Railway:
    return Railway(url)


@pytest.fixture
async def h(app: Railway) -> AsyncGenerator[Harness]:
    """A server that runs, with nothing declared yet."""
    async with Harness(app, now=NOON) as harness:
        yield harness


def version() -> Railway:
    """The code of the next deployment; it never opens a database of its own."""
    return Railway()


def declaring(*external_ids: str) -> Railway:
    code = version()
    for external_id in external_ids:
        code.schedule(code.sync_table, external_id, USERS, FIVE_MINUTES)
    return code


# What is written


def test_declaring_opens_no_database(tmp_path: Path) -> None:
    file = tmp_path / "trax.db"
    app = Railway(f"sqlite:///{file}")

    app.schedule(app.sync_table, "a", USERS, FIVE_MINUTES).then_include(app.sync_table, "b", USERS)
    app.schedule_many(app.sync_table, "sync", TABLES, FIVE_MINUTES, group=Group("etl", max_active_jobs=3))
    app.schedule_once(app.sync_table, "once", USERS, timedelta(hours=1))
    app.group("etl", priority=20)

    assert not file.exists()


async def test_a_manifest_is_stored_with_all_its_declared_values(h: Harness) -> None:
    code = version()
    code.schedule(
        code.sync_table,
        "users",
        USERS,
        cron("0 7 * * mon-fri", tz="Europe/Berlin"),
        group=Group("etl", max_active_jobs=3, priority=20),
        priority=5,
        max_retries=7,
        retry=Retry(delay=timedelta(seconds=30), multiplier=3),
        timeout=timedelta(minutes=2),
        on_misfire="do_nothing",
        misfire_threshold=timedelta(minutes=3),
        exclude=[exclude.dates("2027-12-25")],
        variance=timedelta(seconds=60),
        max_instances=2,
    )

    await deploy(h, code)

    kept, stored = await h.app.manifests.get("users"), await row(h, "users")
    assert (kept.train, kept.input, kept.schedule) == (
        "sync",
        {"table": "users"},
        "0 7 * * mon-fri Europe/Berlin",
    )
    assert (kept.group, kept.priority, kept.enabled) == ("etl", 5, True)
    assert (kept.max_retries, kept.timeout) == (7, timedelta(minutes=2))
    assert (stored["misfire_policy"], stored["misfire_threshold_seconds"]) == ("do_nothing", 180)
    assert (stored["variance_seconds"], stored["max_instances"], stored["origin"]) == (60, 2, "declared")
    assert "2027-12-25" in stored["exclusions"]
    assert '"delay": 30.0' in stored["retry"]
    group = await h.app.groups.get("etl")
    assert (group.max_active_jobs, group.priority, group.enabled) == (3, 20, True)


async def test_include_depends_on_the_root_and_then_include_on_the_manifest_before(h: Harness) -> None:
    code = version()
    (
        code.schedule(code.sync_table, "a", USERS, FIVE_MINUTES)
        .include(code.sync_table, "b", USERS)
        .then_include(code.sync_table, "d", USERS)
        .include(code.sync_table, "c", USERS)
    )

    await deploy(h, code)

    parents = {each.external_id: each.depends_on for each in await h.app.manifests.list()}
    assert parents == {"a": None, "b": "a", "c": "a", "d": "b"}


@in_memory
async def test_a_parent_may_be_declared_after_its_child(h: Harness) -> None:
    code = version()
    code.schedule_many(code.sync_table, "a", {}, FIVE_MINUTES).include_many(
        code.sync_table, "b", [Item("1", USERS, depends_on="later")]
    )
    code.schedule(code.sync_table, "later", USERS, FIVE_MINUTES)

    await deploy(h, code)

    assert (await h.app.manifests.get("b-1")).depends_on == "later"


async def test_a_batch_names_its_manifests_and_its_group(h: Harness) -> None:
    code = version()
    code.schedule_many(code.sync_table, "sync", TABLES, FIVE_MINUTES)

    await deploy(h, code)

    made = await h.app.manifests.list()
    assert [each.external_id for each in made] == ["sync-1", "sync-2", "sync-3"]
    assert {each.group for each in made} == {"sync"}


async def test_a_manifest_without_a_group_gets_one_of_its_own_name(h: Harness) -> None:
    await deploy(h, declaring("users"))

    assert (await h.app.manifests.get("users")).group == "users"


async def test_retries_default_to_the_setting(h: Harness) -> None:
    code = Railway(default_max_retries=8)
    code.schedule(code.sync_table, "unset", USERS, FIVE_MINUTES)
    code.schedule(code.sync_table, "never", USERS, FIVE_MINUTES, max_retries=0)

    await deploy(h, code)

    assert {each.external_id: each.max_retries for each in await h.app.manifests.list()} == {
        "unset": 8,
        "never": 0,
    }


async def test_a_new_manifest_runs_at_once_unless_it_starts_at_the_next_occurrence(h: Harness) -> None:
    code = declaring("eager")
    code.schedule(code.sync_table, "patient", USERS, FIVE_MINUTES, start="next_occurrence")
    code.schedule(code.sync_table, "by-hand", USERS, "on_demand")
    await deploy(h, code)

    await h.cycle("manifest_manager")
    assert [entry.manifest for entry in await queued(h)] == ["eager"]
    await h.advance(minutes=5)
    await h.cycle("manifest_manager")

    assert [entry.manifest for entry in await queued(h)] == ["eager", "patient"]


async def test_a_new_cron_schedule_waits_for_its_first_occurrence_unless_it_starts_now(h: Harness) -> None:
    code = version()
    code.schedule(code.sync_table, "hourly", USERS, cron("30 * * * *"))
    code.schedule(code.sync_table, "eager", USERS, cron("30 * * * *"), start="now")
    await deploy(h, code)
    assert (await h.app.manifests.get("hourly")).next_due_at == NOON + timedelta(minutes=30)

    await h.cycle("manifest_manager")
    assert [entry.manifest for entry in await queued(h)] == ["eager"]
    await h.run_until_idle()
    await h.advance(minutes=30)
    await h.run_until_idle()

    runs = await h.app.executions.list(train="sync")
    assert sorted(str(run.manifest) for run in runs) == ["eager", "eager", "hourly"]


# Writing it again


async def test_declaring_the_same_again_changes_no_row(h: Harness) -> None:
    code = version()
    code.schedule(
        code.sync_table,
        "users",
        USERS,
        every(hours=1, variance=timedelta(minutes=5)),
        exclude=[exclude.time_window("22:00", "06:00")],
        timeout=timedelta(seconds=1.5),
        retry=Retry(delay=timedelta(seconds=0.5)),
        group=Group("etl", max_active_jobs=3, priority=7, enabled=True),
    ).then_include(code.sync_table, "publish", USERS, dormant=True)
    code.schedule_many(code.sync_table, "sync", TABLES, cron("@daily"), enabled=False)
    code.schedule_once(code.sync_table, "once", USERS, timedelta(hours=1))
    await deploy(h, code)
    await h.run_until_idle()
    await h.advance(hours=2)

    with changed_rows(await h.app.context.store.open()) as changes:
        plan = await deploy(h, code)

    assert changes == []
    assert (plan.added, plan.changed, plan.unchanged) == ([], [], 6)


async def test_a_changed_declaration_keeps_the_manifest_and_its_history(h: Harness) -> None:
    code = version()
    code.schedule(code.sync_table, "users", USERS, FIVE_MINUTES, max_retries=3)
    await deploy(h, code)
    await h.run_until_idle()
    before = await h.app.manifests.get("users")

    code = version()
    code.schedule(code.sync_table, "users", ORDERS, cron("0 3 * * *"), max_retries=9)
    await deploy(h, code)

    after = await h.app.manifests.get("users")
    assert (after.id, after.last_successful_run) == (before.id, NOON)
    assert (after.input, after.schedule, after.max_retries) == ({"table": "orders"}, "0 3 * * *", 9)
    assert [run.manifest for run in await h.app.executions.list(train="sync")] == ["users"]


async def test_a_due_time_with_variance_survives_a_restart(h: Harness) -> None:
    def code(priority: int | None = None) -> Railway:
        made = version()
        made.schedule(
            made.sync_table,
            "users",
            USERS,
            every(minutes=5, variance=timedelta(seconds=60)),
            priority=priority,
        )
        return made

    await deploy(h, code())
    await h.run_until_idle()
    thrown = (await row(h, "users"))["next_scheduled_run"]
    assert NOON + timedelta(minutes=5) <= thrown <= NOON + timedelta(minutes=6)

    await deploy(h, code())
    assert (await row(h, "users"))["next_scheduled_run"] == thrown
    await deploy(h, code(priority=9))

    assert (await row(h, "users"))["next_scheduled_run"] == thrown


@pytest.mark.parametrize("variance", [None, timedelta(seconds=60)], ids=["regular", "jittered"])
async def test_a_change_of_other_values_keeps_the_due_time(h: Harness, variance: timedelta | None) -> None:
    def code(**how: Any) -> Railway:
        made = version()
        made.schedule(made.sync_table, "users", USERS, every(minutes=5, variance=variance), **how)
        return made

    await deploy(h, code())
    await h.run_until_idle()
    before = await row(h, "users")
    await h.advance(minutes=1)

    plan = await deploy(h, code(timeout=timedelta(minutes=1), priority=9))

    after = await row(h, "users")
    assert plan.changed == [{"id": before["id"], "timeout_seconds": 60.0, "priority": 9}]
    assert (after["next_due_at"], after["next_scheduled_run"]) == (
        before["next_due_at"],
        before["next_scheduled_run"],
    )
    assert (await h.cycle("manifest_manager")).queued == []


@in_memory
async def test_a_new_schedule_is_counted_from_the_last_success(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.run_until_idle()
    code = version()
    code.schedule(code.sync_table, "users", USERS, every(hours=1))

    await deploy(h, code)

    await h.advance(minutes=59)
    assert await h.cycle("manifest_manager")
    assert await queued(h) == []
    await h.advance(minutes=1)
    await h.cycle("manifest_manager")
    assert len(await queued(h)) == 1


POLICIES = ["fire_once_now", "do_nothing", "fire_all"]
NEW_CRON = {
    "expression": cron("15 * * * *"),
    "often": cron("* * * * *"),
    "zone": cron("0 9 * * *", tz="Asia/Kolkata"),
    "variance": cron("15 * * * *", variance=timedelta(seconds=5)),
}


@in_memory
@pytest.mark.parametrize("edited", NEW_CRON.values(), ids=NEW_CRON.keys())
@pytest.mark.parametrize("on_misfire", ["fire_once_now", "do_nothing", fire_all(100)], ids=POLICIES)
@pytest.mark.parametrize(
    "before", [cron("0 9 * * *"), FIVE_MINUTES, "on_demand"], ids=["cron", "interval", "by_hand"]
)
async def test_editing_a_cron_schedule_starts_nothing_by_itself(
    h: Harness, edited: Cron, on_misfire: Any, before: Any
) -> None:
    code = version()
    code.schedule(code.sync_table, "users", USERS, before, on_misfire=on_misfire)
    await deploy(h, code)
    await h.app.manifests.trigger("users")
    await h.run_until_idle()
    await h.advance(days=3, minutes=1)

    code = version()
    code.schedule(code.sync_table, "users", USERS, edited, on_misfire=on_misfire)
    await deploy(h, code)
    await h.run_until_idle()

    ran = len(await h.app.executions.list(train="sync"))
    assert await queued(h) == []
    first = next_occurrence(edited, h.now)
    assert (await h.app.manifests.get("users")).next_due_at == first
    h.now = first
    await h.run_until_idle()
    runs = await h.app.executions.list(train="sync")
    assert len(runs) == ran + 1, "the next occurrence, and none from before the edit"


@pytest.mark.parametrize("on_misfire", ["fire_once_now", fire_all(100)], ids=["fire_once_now", "fire_all"])
async def test_an_edited_cron_schedule_continues_with_its_next_occurrence(
    h: Harness, on_misfire: Any
) -> None:
    code = version()
    code.schedule(code.sync_table, "users", USERS, cron("0 9 * * *"), on_misfire=on_misfire, start="now")
    await deploy(h, code)
    await h.run_until_idle()
    await h.advance(hours=20)

    code = version()
    code.schedule(code.sync_table, "users", USERS, cron("15 * * * *"), on_misfire=on_misfire)
    await deploy(h, code)
    await h.run_until_idle()
    assert len(await h.app.executions.list(train="sync")) == 1
    await h.advance(minutes=15)
    await h.run_until_idle()

    assert len(await h.app.executions.list(train="sync")) == 2


async def test_editing_a_cron_schedule_delays_no_retry(h: Harness) -> None:
    code = version()
    code.schedule(code.broken, "users", USERS, cron("0 9 * * *"), start="now", enabled=True)
    await deploy(h, code)
    await h.cycle("manifest_manager")
    await h.cycle("job_dispatcher")
    await h.work()

    code = version()
    code.schedule(code.broken, "users", USERS, cron("0 10 1 * *"), enabled=True)
    await deploy(h, code)
    await h.cycle("manifest_manager")

    (retry,) = await queued(h)
    assert (retry.origin, retry.scheduled_at) == ("retry", h.now + timedelta(minutes=5))


@in_memory
async def test_editing_a_manifest_that_has_not_run_keeps_its_declared_start(h: Harness) -> None:
    for start in ("now", None):
        code = version()
        code.schedule(code.sync_table, f"{start}", USERS, cron("0 9 * * *"), enabled=False)
        await deploy(h, code)
        code = version()
        code.schedule(code.sync_table, f"{start}", USERS, cron("15 * * * *"), enabled=True, start=start)
        await deploy(h, code)

        await h.cycle("manifest_manager")

        assert [entry.manifest for entry in await queued(h)] == (["now"] if start else [])


async def test_a_scheduled_manifest_can_become_a_dependent_and_return(h: Harness) -> None:
    await deploy(h, declaring("a", "b"))

    code = version()
    code.schedule(code.sync_table, "a", USERS, FIVE_MINUTES).then_include(code.sync_table, "b", USERS)
    await deploy(h, code)
    dependent = await row(h, "b")
    await deploy(h, declaring("a", "b"))
    free = await row(h, "b")

    assert (dependent["schedule_type"], dependent["interval_seconds"]) == ("dependent", None)
    assert dependent["depends_on_id"] == (await row(h, "a"))["id"]
    assert (free["schedule_type"], free["interval_seconds"], free["depends_on_id"]) == ("interval", 300, None)


async def test_a_dependent_with_another_parent_is_evaluated_again(h: Harness) -> None:
    def code(parent: str) -> Railway:
        made = declaring("busy")
        made.schedule(made.broken, "idle", USERS, FIVE_MINUTES).include_many(
            made.sync_table, None, [Item("child", USERS, depends_on=parent)]
        )
        return made

    await deploy(h, code("idle"))
    await h.run_until_idle()
    assert (await h.app.manifests.get("child")).last_successful_run is None

    await deploy(h, code("busy"))
    await h.run_until_idle()

    assert (await h.app.manifests.get("child")).last_successful_run == NOON


async def test_a_restart_does_not_postpone_a_once_manifest(h: Harness) -> None:
    code = version()
    code.schedule_once(code.sync_table, "post-deploy", USERS, timedelta(minutes=10))
    await deploy(h, code)
    await h.advance(minutes=9)

    await deploy(h, code)

    await h.advance(seconds=59)
    await h.cycle("manifest_manager")
    assert await queued(h) == []
    await h.advance(seconds=1)
    await h.cycle("manifest_manager")
    assert [entry.manifest for entry in await queued(h)] == ["post-deploy"]


async def test_a_finished_once_manifest_is_disabled_and_does_not_run_after_a_restart(h: Harness) -> None:
    code = version()
    code.schedule_once(code.sync_table, "post-deploy", USERS)
    await deploy(h, code)
    await h.run_until_idle()
    assert not (await h.app.manifests.get("post-deploy")).enabled

    await h.advance(days=1)
    await deploy(h, code)
    await h.app.manifests.enable("post-deploy")
    await h.run_until_idle()

    assert len(await h.app.executions.list(train="sync")) == 1


@in_memory
async def test_a_finished_once_manifest_runs_again_when_code_gives_it_a_schedule(h: Harness) -> None:
    code = version()
    code.schedule_once(code.sync_table, "users", USERS)
    await deploy(h, code)
    await h.run_until_idle()
    await h.advance(minutes=5)

    await deploy(h, declaring("users"))
    await h.run_until_idle()

    assert (await h.app.manifests.get("users")).last_successful_run == h.now


# What operators have changed


def switched(*, on: bool = True, off: bool = False) -> Railway:
    """Code that says of two manifests whether they are enabled, and of one nothing."""
    code = declaring("unsaid")
    code.schedule(code.sync_table, "on", USERS, FIVE_MINUTES, enabled=on)
    code.schedule(code.sync_table, "off", USERS, FIVE_MINUTES, enabled=off)
    return code


async def test_operator_overrides_stay_until_code_changes_the_value(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(h, switched())
    await h.app.manifests.disable("unsaid")
    await h.app.manifests.disable("on")
    await h.app.manifests.enable("off")

    with caplog.at_level(logging.INFO, "trax.server.start"):
        await deploy(h, switched())
    enabled = {each.external_id: each.enabled for each in await h.app.manifests.list()}
    await deploy(h, switched(on=False))
    await deploy(h, switched())
    again = {each.external_id: each.enabled for each in await h.app.manifests.list()}

    assert enabled == {"unsaid": False, "on": False, "off": True}
    assert again == {"unsaid": False, "on": True, "off": True}
    (said,) = caplog.messages
    assert said == (
        "app 'default': 2 values set by operators stay until code changes them: "
        "enabled=False of manifest 'on' (code says True), enabled=True of manifest 'off' (code says False)"
    )


async def test_a_restored_manifest_is_enabled_as_declared(h: Harness) -> None:
    await deploy(h, switched())
    await h.app.manifests.disable("on")
    await deploy(h, version())

    await deploy(h, switched())

    assert (await h.app.manifests.get("on")).enabled


@in_memory
async def test_a_changed_declaration_leaves_a_disabled_manifest_disabled(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.app.manifests.disable("users")
    code = version()
    code.schedule(code.sync_table, "users", ORDERS, every(hours=1))

    await deploy(h, code)

    users = await h.app.manifests.get("users")
    assert (users.enabled, users.input) == (False, {"table": "orders"})


async def test_a_group_keeps_what_operators_set_and_code_does_not_mention(h: Harness) -> None:
    code = declaring("users")
    await deploy(h, code)
    await h.app.groups.update("users", max_active_jobs=5, priority=9, enabled=False)

    await deploy(h, code)

    group = await h.app.groups.get("users")
    assert (group.max_active_jobs, group.priority, group.enabled) == (5, 9, False)


@in_memory
async def test_code_removes_the_limit_of_a_group_with_none(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.app.groups.update("users", max_active_jobs=5)
    code = declaring("users")
    code.group("users", max_active_jobs=None)

    await deploy(h, code)

    assert (await h.app.groups.get("users")).max_active_jobs is None


async def test_a_group_that_code_opens_again_starts_what_waited_in_it(h: Harness) -> None:
    closed, opened = declaring("users"), declaring("users")
    closed.group("users", enabled=False)
    opened.group("users", enabled=True)
    await deploy(h, closed)
    await h.cycle("manifest_manager")
    assert await queued(h) == []

    await deploy(h, opened)
    await h.cycle("manifest_manager")

    assert [entry.manifest for entry in await queued(h)] == ["users"]


async def test_enabling_a_parent_in_code_starts_its_waiting_dependents(h: Harness) -> None:
    def code(*, enabled: bool) -> Railway:
        made = version()
        made.schedule(made.sync_table, "a", USERS, FIVE_MINUTES, enabled=enabled).then_include(
            made.sync_table, "b", USERS
        )
        return made

    await deploy(h, code(enabled=True))
    await h.cycle("manifest_manager")
    await run_queued(h)
    await deploy(h, code(enabled=False))
    await h.run_until_idle()
    assert (await h.app.manifests.get("b")).last_successful_run is None

    await deploy(h, code(enabled=True))
    await h.run_until_idle()

    assert (await h.app.manifests.get("b")).last_successful_run == NOON


async def test_a_priority_that_code_changes_moves_what_is_queued(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.cycle("manifest_manager")
    code = declaring("users")
    code.group("users", priority=20)

    await deploy(h, code)

    (entry,) = await rows(h, "work_queue")
    assert (entry["status"], entry["group_priority"]) == ("queued", 20)


# What is declared no longer


async def test_a_manifest_no_longer_declared_is_retired_and_keeps_its_history(h: Harness) -> None:
    code = declaring("stays")
    code.schedule(code.broken, "goes", USERS, FIVE_MINUTES, max_retries=1)
    await deploy(h, code)
    await h.run_until_idle()
    await h.app.manifests.trigger("goes")
    assert len(await h.app.dead_letters.list()) == 1
    kept = await row(h, "stays")

    await deploy(h, declaring("stays"))

    goes = await h.app.manifests.get("goes")
    assert (await names(h), await row(h, "stays")) == (["stays"], kept)
    assert (goes.retired_at, goes.next_due_at) == (h.now, None)
    assert [letter.manifest for letter in await h.app.dead_letters.list()] == ["goes"]
    assert [run.manifest for run in await h.app.executions.list(train="broken")] == ["goes"]
    assert await queued(h, "goes") == []
    assert await group_names(h) == ["stays"]


async def test_a_shrunk_batch_retires_the_rest_and_all_keep_their_history(h: Harness) -> None:
    code = version()
    code.schedule_many(code.sync_table, "sync", TABLES, FIVE_MINUTES)
    await deploy(h, code)
    await h.run_until_idle()
    await h.app.manifests.trigger("sync-3")
    before = {each.external_id: each for each in await h.app.manifests.list()}

    code = version()
    code.schedule_many(code.sync_table, "sync", {"1": TABLES["1"], "2": TABLES["2"]}, FIVE_MINUTES)
    await deploy(h, code)

    del before["sync-3"]
    assert {each.external_id: each for each in await h.app.manifests.list()} == before
    runs = await h.app.executions.list(train="sync")
    assert {run.manifest for run in runs} == {"sync-1", "sync-2", "sync-3"}
    assert await queued(h) == []


async def test_an_empty_declaration_retires_all_declared_manifests(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("a", "b"))
    await app.manifests.schedule(app.sync_table, "mine", USERS, FIVE_MINUTES)

    await deploy(h, version())

    assert await names(h) == ["mine"]
    assert await group_names(h) == ["mine"]


async def test_without_pruning_nothing_is_deleted(h: Harness) -> None:
    await deploy(h, declaring("a", "b"))
    await h.app.groups.update("a", max_active_jobs=3)

    await deploy(h, Railway(prune_orphaned_manifests=False))

    assert await names(h) == ["a", "b"]
    assert await group_names(h) == ["a", "b"]


async def test_a_run_time_manifest_is_never_retired_until_code_declares_it(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    made = await h.app.manifests.get("users")
    await deploy(h, version())
    assert await names(h) == ["users"]

    await deploy(h, declaring("users"))
    assert (await h.app.manifests.get("users")).id == made.id
    await deploy(h, version())

    assert await names(h) == []


async def test_a_declared_manifest_changed_at_run_time_is_still_owned_by_code(
    app: Railway, h: Harness
) -> None:
    await deploy(h, declaring("users"))
    await app.manifests.schedule(app.sync_table, "users", ORDERS, every(hours=1))
    assert (await h.app.manifests.get("users")).input == {"table": "orders"}

    await deploy(h, version())

    assert await names(h) == []


async def test_a_child_outlives_its_retired_parent_and_rests(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("parent"))
    await app.manifests.schedule_dependent(app.sync_table, "child", USERS, "parent")

    await deploy(h, version())
    await h.run_until_idle()

    child = await h.app.manifests.get("child")
    assert (child.depends_on, child.schedule_type, child.retired_at) == ("parent", "dependent", None)
    assert await queued(h) == []


async def test_more_manifests_than_fit_in_a_statement_are_retired(h: Harness) -> None:
    code = version()
    code.schedule_many(code.sync_table, "many", dict.fromkeys(range(1_100), USERS), FIVE_MINUTES)
    await deploy(h, code)

    await deploy(h, declaring("last"))

    assert await names(h) == ["last"]


async def test_unused_groups_are_retired_and_those_in_use_or_in_code_stay(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("emptied"))
    await app.queue(app.sync_table, USERS, group="waiting")
    await app.queue(app.sync_table, USERS, group="done")
    await insert(
        h,
        "metadata",
        external_id="f" * 32,
        train="sync",
        state="pending",
        created_at=NOON,
        group_id=(await h.app.groups.get("done")).id,
    )
    code = version()
    code.group("named", max_active_jobs=2)
    await deploy(h, code)
    assert await group_names(h) == ["done", "named", "waiting"]

    await run_queued(h)
    await deploy(h, code)

    assert await group_names(h) == ["done", "named", "waiting"]


# What is refused


async def test_a_parent_that_does_not_exist_is_named_and_nothing_is_written(h: Harness) -> None:
    await deploy(h, declaring("before"))
    before = await rows(h, "manifest"), await rows(h, "manifest_group")
    code = declaring("fine")
    code.schedule_many(code.sync_table, "a", {}, FIVE_MINUTES).include_many(
        code.sync_table, "load", [Item("1", USERS, depends_on="nowhere")]
    )

    with pytest.raises(DefinitionError, match="'load-1' depends on 'nowhere', which does not exist"):
        await deploy(h, code)

    assert (await rows(h, "manifest"), await rows(h, "manifest_group")) == before


async def test_a_parent_that_code_has_just_dropped_is_refused_by_name(h: Harness) -> None:
    def code(*, has_parent: bool) -> Railway:
        made = declaring("parent") if has_parent else version()
        made.schedule_many(made.sync_table, "a", {}, FIVE_MINUTES).include_many(
            made.sync_table, None, [Item("child", USERS, depends_on="parent")]
        )
        return made

    await deploy(h, code(has_parent=True))

    with pytest.raises(DefinitionError, match="'child' depends on 'parent', which is retired"):
        await deploy(h, code(has_parent=False))

    assert (await h.app.manifests.get("child")).depends_on == "parent"


@in_memory
async def test_a_parent_made_at_run_time_is_accepted(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "parent", USERS, FIVE_MINUTES)
    code = version()
    code.schedule_many(code.sync_table, "a", {}, FIVE_MINUTES).include_many(
        code.sync_table, None, [Item("child", USERS, depends_on="parent")]
    )

    await deploy(h, code)

    assert (await h.app.manifests.get("child")).depends_on == "parent"


async def test_a_dependent_starts_after_its_parent_in_spite_of_exclusions(h: Harness) -> None:
    code = version()
    code.schedule(code.sync_table, "parent", USERS, FIVE_MINUTES).then_include(
        code.sync_table, "child", USERS, exclude=exclude.days_of_week("mon")
    )
    await deploy(h, code)
    assert NOON.strftime("%a") == "Mon"

    await h.run_until_idle()

    entries = [each for each in await rows(h, "work_queue") if each["origin"] == Origin.SCHEDULE]
    assert len(entries) == 2
    assert (await h.app.manifests.get("child")).last_successful_run == NOON
