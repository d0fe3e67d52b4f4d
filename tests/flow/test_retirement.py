"""Retirement of manifests that are no longer declared, and their return."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import (
    ORDERS,
    USERS,
    Railway,
    deploy,
    group_names,
    in_memory,
    names,
    queued,
    register_server,
    row,
)
from tests.support.running import run_queued

from trax import Item, cron, every
from trax.engine.seed import declaration_digest, retire_undeclared
from trax.errors import Conflict, DefinitionError
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax import Trax
    from trax.engine.seed import RetirementResult

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
BACK = "to restore it, declare it in code again or schedule it under this id"


@pytest.fixture
def app(url: str) -> Railway:
    return Railway(url)


@pytest.fixture
async def h(app: Railway) -> AsyncGenerator[Harness]:
    async with Harness(app, now=NOON) as harness:
        yield harness


def declaring(*external_ids: str, name: str = "default", when: Any = FIVE_MINUTES, **how: Any) -> Railway:
    code = Railway(name=name)
    for external_id in external_ids:
        code.schedule(code.sync_table, external_id, USERS, when, **how)
    return code


def digest_of(code: Trax) -> str:
    return declaration_digest(code.context.declarations.timetable())


async def retired(h: Harness) -> list[str]:
    return [each.external_id for each in await h.app.manifests.list(retired=True)]


# What a retirement does


async def test_an_active_run_of_a_retired_manifest_counts_and_its_end_is_recorded(
    app: Railway, h: Harness
) -> None:
    slow = Railway()
    slow.schedule(slow.sync_table, "users", USERS, FIVE_MINUTES, group="etl")
    slow.group("etl", max_active_jobs=1)
    await deploy(h, slow)
    await h.cycle("manifest_manager")
    await h.cycle("job_dispatcher")
    without = Railway()
    without.group("etl", max_active_jobs=1)

    await deploy(h, without)
    await app.queue(app.sync_table, ORDERS, group="etl")
    full = await h.cycle("job_dispatcher")
    await h.work()
    free = await h.cycle("job_dispatcher")

    users = await app.manifests.get("users")
    (run,) = await app.executions.list(manifest="users")
    assert (full.metadata_ids, len(free.metadata_ids)) == ([], 1)
    assert (run.state, users.last_successful_run, users.next_due_at) == ("completed", NOON, None)


async def test_queued_entries_of_a_retired_manifest_are_cancelled(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.cycle("manifest_manager")
    entry = await h.app.manifests.trigger("users", delay=timedelta(hours=1))

    await deploy(h, declaring())

    assert await queued(h) == []
    assert (await h.app.work_queue.get(entry.id)).status == "cancelled"


async def test_a_run_that_fails_after_the_retirement_is_not_retried_but_reported(h: Harness) -> None:
    code = Railway()
    code.schedule(code.broken, "users", USERS, FIVE_MINUTES, max_retries=3)
    await deploy(h, code)
    await h.cycle("manifest_manager")
    await h.cycle("job_dispatcher")
    await deploy(h, declaring())

    await h.run_until_idle()

    (letter,) = await h.app.dead_letters.list(manifest="users")
    assert (letter.status, letter.reason) == ("awaiting_intervention", "failed once; it is retired")
    assert await queued(h) == []
    assert (await h.app.manifests.get("users")).next_due_at is None


async def test_a_manifest_retired_after_its_last_failure_still_gets_its_dead_letter(h: Harness) -> None:
    code = Railway()
    code.schedule(code.broken, "users", USERS, FIVE_MINUTES, max_retries=1)
    await deploy(h, code)
    await h.cycle("manifest_manager")
    await run_queued(h)
    await deploy(h, declaring())

    await h.cycle("manifest_manager")

    (letter,) = await h.app.dead_letters.list(manifest="users")
    assert letter.status == "awaiting_intervention"
    assert (await h.app.manifests.get("users")).next_due_at is None


async def test_a_waiting_letter_stays_and_is_acknowledged(h: Harness) -> None:
    code = Railway()
    code.schedule(code.broken, "users", USERS, FIVE_MINUTES, max_retries=1)
    await deploy(h, code)
    await h.run_until_idle()
    await deploy(h, declaring())
    (letter,) = await h.app.dead_letters.list(manifest="users", status="awaiting_intervention")

    await h.app.dead_letters.acknowledge([letter.id], "no longer needed")
    await h.run_until_idle()

    assert (await h.app.dead_letters.get(letter.id)).status == "acknowledged"
    assert [run.manifest for run in await h.app.executions.list(train="broken")] == ["users"]


async def test_a_letter_that_is_requeued_runs_once_with_its_own_input(app: Railway, h: Harness) -> None:
    code = Railway()
    code.schedule(code.broken, "users", USERS, FIVE_MINUTES, max_retries=1)
    await deploy(h, code)
    await h.run_until_idle()
    (letter,) = await app.dead_letters.list()
    await app.manifests.schedule(app.sync_table, "users", ORDERS, FIVE_MINUTES)
    await app.manifests.delete("users")

    await app.dead_letters.requeue([letter.id])
    (entry,) = await queued(h, "users")
    await h.run_until_idle()

    assert (entry.train, entry.input, entry.origin) == ("broken", {"table": "users"}, "requeue")
    assert entry.dead_letter_id == letter.id
    assert len(await app.executions.list(manifest="users")) == 2
    (again,) = await app.dead_letters.list(status="awaiting_intervention")
    assert (again.manifest, again.reason) == ("users", "failed once; it is retired")


@pytest.mark.parametrize("verb", ["trigger", "enable", "disable", "delete"])
async def test_operations_on_a_retired_manifest_explain_how_to_restore_it(
    app: Railway, h: Harness, verb: str
) -> None:
    await deploy(h, declaring("users"))
    await deploy(h, declaring())

    with pytest.raises(
        Conflict, match=f"manifest 'users' has been retired since 2027-03-01 12:00:00 UTC; {BACK}"
    ):
        await getattr(app.manifests, verb)("users")

    (reason,) = await app.why("users")
    assert (reason.code, reason.text) == (
        "retired",
        f"it has been retired since 2027-03-01 12:00:00 UTC: {BACK}",
    )


@in_memory
async def test_triggering_a_group_skips_retired_manifests(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "goes", USERS, FIVE_MINUTES, group="etl")
    await app.manifests.schedule(app.sync_table, "stays", USERS, FIVE_MINUTES, group="etl")
    await app.manifests.delete("goes")

    assert await app.groups.trigger("etl") == 1
    assert [entry.manifest for entry in await queued(h)] == ["stays"]


async def test_lists_omit_retired_manifests_by_default(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("goes", "stays"))
    await deploy(h, declaring("stays"))

    pages = [await app.manifests.page(retired=which) for which in (False, True, None)]

    assert (await names(h), await retired(h)) == (["stays"], ["goes"])
    assert [each.external_id for each in await app.manifests.list(retired=None)] == ["goes", "stays"]
    assert [[each.external_id for each in page.items] for page in pages] == [
        ["stays"],
        ["goes"],
        ["goes", "stays"],
    ]
    assert ((await app.manifests.count()).number, (await app.manifests.count(retired=True)).number) == (1, 1)
    assert (await app.manifests.page(text="goes")).items == ()


async def test_a_group_with_nothing_but_retired_manifests_is_not_listed(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("goes", "limited"))
    await app.groups.update("limited", max_active_jobs=2)

    await deploy(h, declaring())

    assert await group_names(h) == ["limited"]
    assert (await app.groups.get("goes")).name == "goes"


async def test_a_declared_child_of_a_retired_parent_is_refused(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "parent", USERS, FIVE_MINUTES)
    await app.manifests.delete("parent")
    code = Railway()
    code.schedule_many(code.sync_table, "a", {}, FIVE_MINUTES).include_many(
        code.sync_table, None, [Item("child", USERS, depends_on="parent")]
    )

    with pytest.raises(DefinitionError, match="'child' depends on 'parent', which is retired; schedule it"):
        await deploy(h, code)


@in_memory
async def test_a_retired_manifest_is_no_part_of_a_circle(app: Railway, h: Harness) -> None:
    await app.manifests.schedule(app.sync_table, "a", USERS, FIVE_MINUTES)
    await app.manifests.schedule_dependent(app.sync_table, "b", USERS, "a")
    await app.manifests.delete("b")
    code = Railway()
    code.schedule(code.sync_table, "b", USERS, FIVE_MINUTES).include(code.sync_table, "a", USERS)

    await deploy(h, code)

    assert (await app.manifests.get("a")).depends_on == "b"


# How it comes back


async def test_a_returned_interval_is_counted_from_its_last_success(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.run_until_idle()
    before = await h.app.manifests.get("users")
    await deploy(h, declaring())
    await h.advance(minutes=2)

    await deploy(h, declaring("users"))

    after = await h.app.manifests.get("users")
    assert (after.id, after.retired_at, after.last_successful_run) == (before.id, None, NOON)
    assert (await h.cycle("manifest_manager")).queued == []
    await h.advance(minutes=3)
    await h.cycle("manifest_manager")
    assert [entry.manifest for entry in await queued(h)] == ["users"]


async def test_a_returned_cron_schedule_waits_for_its_next_occurrence(h: Harness) -> None:
    await deploy(h, declaring("users", when=cron("0 13 * * *")))
    await h.advance(hours=1)
    await h.run_until_idle()
    await deploy(h, declaring())
    await h.advance(days=3, hours=4)

    await deploy(h, declaring("users", when=cron("0 13 * * *")))
    await h.run_until_idle()

    users = await h.app.manifests.get("users")
    assert users.next_due_at == datetime(2027, 3, 5, 13, tzinfo=UTC)
    runs = len(await h.app.executions.list(train="sync"))
    await h.advance(hours=20)
    await h.run_until_idle()
    assert len(await h.app.executions.list(train="sync")) == runs + 1


async def test_failures_before_the_return_are_not_retried(h: Harness) -> None:
    def code() -> Railway:
        made = Railway()
        made.schedule(made.broken, "users", USERS, cron("0 13 * * *"), start="now", max_retries=3)
        return made

    await deploy(h, code())
    await h.app.manifests.trigger("users")
    await run_queued(h)
    assert (await h.app.manifests.get("users")).failure_count == 1
    await deploy(h, declaring())

    await deploy(h, code())
    await h.run_until_idle()

    users = await h.app.manifests.get("users")
    assert (users.failure_count, users.next_due_at) == (0, NOON + timedelta(hours=1))
    assert (await row(h, "users"))["lifetime_failures"] == 1


async def test_a_disabled_manifest_is_still_disabled_after_its_return(h: Harness) -> None:
    await deploy(h, declaring("users"))
    await h.app.manifests.disable("users")
    await deploy(h, declaring())

    await deploy(h, declaring("users"))

    assert not (await h.app.manifests.get("users")).enabled


async def test_a_retired_manifest_scheduled_at_run_time_is_no_longer_owned_by_code(
    app: Railway, h: Harness
) -> None:
    await deploy(h, declaring("users"))
    await deploy(h, declaring())

    back = await app.manifests.schedule(app.sync_table, "users", ORDERS, FIVE_MINUTES)
    await deploy(h, declaring())

    assert (back.retired_at, await names(h)) == (None, ["users"])


async def test_a_deleted_once_manifest_runs_again_when_it_is_scheduled_again(
    app: Railway, h: Harness
) -> None:
    await app.manifests.schedule_once(app.sync_table, "once", USERS)
    await h.run_until_idle()
    await app.manifests.delete("once")

    await app.manifests.schedule_once(app.sync_table, "once", USERS)
    await h.run_until_idle()

    assert len(await app.executions.list(manifest="once")) == 2


async def test_dependents_continue_when_their_parent_returns(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("parent"))
    await app.manifests.schedule_dependent(app.sync_table, "child", USERS, "parent")
    await deploy(h, declaring())
    await h.run_until_idle()
    assert (await app.manifests.get("child")).last_successful_run is None

    await deploy(h, declaring("parent"))
    await h.run_until_idle()

    assert (await app.manifests.get("child")).last_successful_run == NOON


# Renaming


async def test_a_rename_keeps_the_history(h: Harness) -> None:
    code = Railway()
    code.schedule(code.broken, "old", USERS, FIVE_MINUTES, max_retries=1)
    await deploy(h, code)
    await h.run_until_idle()
    before = await h.app.manifests.get("old")

    def renamed() -> Railway:
        made = Railway()
        made.schedule(made.broken, "new", USERS, FIVE_MINUTES, max_retries=1, renamed_from=["older", "old"])
        return made

    await deploy(h, renamed())
    again = await deploy(h, renamed())

    after = await h.app.manifests.get("new")
    assert (after.id, await names(h), await retired(h)) == (before.id, ["new"], [])
    assert [run.manifest for run in await h.app.executions.list(train="broken")] == ["new"]
    assert [letter.manifest for letter in await h.app.dead_letters.list()] == ["new"]
    assert again.unchanged == 1


async def test_a_retired_manifest_returns_under_a_new_name(app: Railway, h: Harness) -> None:
    await deploy(h, declaring("old"))
    await h.run_until_idle()
    await deploy(h, declaring())

    back = await app.manifests.schedule(app.sync_table, "new", USERS, FIVE_MINUTES, renamed_from="old")

    assert (back.external_id, back.last_successful_run, back.retired_at) == ("new", NOON, None)
    assert await retired(h) == []


@in_memory
async def test_a_manifest_that_is_still_declared_cannot_be_renamed(app: Railway, h: Harness) -> None:
    code = declaring("old")
    code.schedule(code.sync_table, "new", USERS, FIVE_MINUTES, renamed_from="old")
    with pytest.raises(DefinitionError, match="'new' is renamed from 'old', which is still declared"):
        await deploy(h, code)

    await deploy(h, declaring("old"))
    with pytest.raises(DefinitionError, match="'new' is renamed from 'old', which is declared in code"):
        await app.manifests.schedule(app.sync_table, "new", USERS, FIVE_MINUTES, renamed_from="old")


@in_memory
async def test_two_manifests_cannot_be_renamed_from_the_same_one(h: Harness) -> None:
    code = declaring("a", "b", renamed_from="old")

    with pytest.raises(DefinitionError, match="'a' and 'b' are both renamed from 'old'"):
        await deploy(h, code)


# Several apps, several servers


async def test_an_app_retires_only_what_it_declared_itself(h: Harness) -> None:
    await deploy(h, declaring("ours", name="billing"))
    await deploy(h, declaring("theirs", name="mail"))

    await deploy(h, declaring(name="billing"))

    assert (await names(h), await retired(h)) == (["theirs"], ["ours"])
    assert (await row(h, "theirs"))["app"] == "mail"


async def test_a_batch_leaves_those_of_another_app_alone(app: Railway, h: Harness) -> None:
    other = declaring(name="mail")
    other.schedule_many(other.sync_table, "sync", {"1": USERS}, FIVE_MINUTES)
    await deploy(h, other)

    await app.manifests.schedule_many(app.sync_table, "sync", {"2": USERS}, FIVE_MINUTES)

    assert await names(h) == ["sync-1", "sync-2"]


async def test_a_rolling_deploy_stops_nothing_that_a_live_server_declares(
    app: Railway, h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = declaring("stays", "goes"), declaring("stays", "comes")
    await deploy(h, old)
    await register_server(app, declares=digest_of(old), pid=7, now=h.now)

    with caplog.at_level(logging.WARNING):
        plan = await deploy(h, new)

    assert await names(h) == ["comes", "goes", "stays"]
    assert (plan.retired.retired, plan.retired.postponed) == ((), ("goes",))
    assert [server.pid for server in plan.retired.servers] == [7]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "app 'default': other servers declare different manifests or groups: here (process 7); 1 manif"
    )


async def later(h: Harness, code: Trax, only: tuple[str, ...]) -> RetirementResult:
    """What a server does again and again, once it has postponed something."""
    store = await h.app.context.store.open()
    timetable, settings = code.context.declarations.timetable(), code.context.settings
    return await store.call(retire_undeclared, timetable, settings, app="default", now=h.now, only=only)


async def test_a_postponed_retirement_happens_when_the_old_servers_have_stopped(
    app: Railway, h: Harness
) -> None:
    old, new, newer = declaring("stays", "goes"), declaring("stays"), declaring("stays", "newer")
    await deploy(h, old)
    await register_server(app, declares=digest_of(old), now=h.now)
    await register_server(app, declares=digest_of(new), now=h.now + timedelta(minutes=1))
    await register_server(app, declares=None, now=h.now + timedelta(minutes=1))
    await register_server(app, declares="others", name="mail", now=h.now + timedelta(minutes=1))
    postponed = (await deploy(h, new)).retired.postponed

    too_early = await later(h, new, postponed)
    await h.advance(minutes=1)
    await deploy(h, newer)
    in_time = await later(h, new, postponed)

    assert (too_early.retired, too_early.postponed) == ((), ("goes",))
    assert (in_time.retired, in_time.postponed) == (("goes",), ())
    assert await names(h) == ["newer", "stays"]


def test_the_digest_depends_on_what_is_declared_and_not_on_the_order() -> None:
    assert digest_of(declaring("a", "b")) == digest_of(declaring("b", "a"))
    assert digest_of(declaring("a", "b")) != digest_of(declaring("a"))


@pytest.mark.parametrize("name", ["", "two words", 7], ids=str)
def test_an_app_has_a_proper_name(name: Any) -> None:
    with pytest.raises(DefinitionError, match="an app's name"):
        Railway(name=name)
