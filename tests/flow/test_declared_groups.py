"""Groups have owners: what code declares of them is remembered, and none goes that anything needs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import (
    USERS,
    Railway,
    deploy,
    group_names,
    insert,
    register_server,
    rows,
)

from trax import Group, every
from trax.engine.seed import declaration_digest
from trax.errors import DefinitionError
from trax.inspect.plan import load_stored, plan
from trax.store import declared_groups, groups
from trax.store.schema import tables_for
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
    """A server that runs, with nothing declared yet."""
    async with Harness(app, now=NOON) as harness:
        yield harness


def version(name: str = "default", **limits: int) -> Railway:
    """The code of an app that declares groups, each with its limit."""
    code = Railway(name=name)
    for group, limit in limits.items():
        code.group(group, max_active_jobs=limit)
    return code


# What operators set


def limited(max_active_jobs: int | None, **options: Any) -> Railway:
    """Code that sets a limit of the group "etl"."""
    code = version()
    code.group("etl", max_active_jobs=max_active_jobs, **options)
    return code


async def test_an_operators_limit_stays_until_code_sets_another(
    h: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    await deploy(h, limited(2, priority=3, enabled=True))
    await h.app.groups.update("etl", max_active_jobs=10, priority=9, enabled=False)

    with caplog.at_level(logging.INFO, "trax.server.start"):
        await deploy(h, limited(2, priority=3, enabled=True))
    kept = await h.app.groups.get("etl")
    await deploy(h, limited(4, priority=3, enabled=True))
    changed = await h.app.groups.get("etl")

    assert (kept.max_active_jobs, kept.priority, kept.enabled) == (10, 9, False)
    assert (changed.max_active_jobs, changed.priority, changed.enabled) == (4, 9, False)
    (said,) = caplog.messages
    assert said == (
        "app 'default': 3 values set by operators stay until code changes them: max_active_jobs=10 of group "
        "'etl' (code says 2), priority=9 of group 'etl' (code says 3), enabled=False of group 'etl' (code "
        "says True)"
    )


async def test_each_app_remembers_what_it_declares_of_a_shared_group(h: Harness) -> None:
    async def start_app(name: str, max_active_jobs: int) -> int | None:
        code = Railway(name=name)
        code.group("etl", max_active_jobs=max_active_jobs)
        await deploy(h, code)
        return (await h.app.groups.get("etl")).max_active_jobs

    limits = [await start_app(name, limit) for name, limit in [("a", 2), ("b", 3), ("a", 2), ("b", 4)]]

    assert limits == [2, 3, 3, 4]


async def test_a_reset_restores_the_values_of_code_for_groups_and_manifests(app: Railway, h: Harness) -> None:
    app.group("etl", max_active_jobs=2)
    app.schedule(app.sync_table, "users", USERS, FIVE_MINUTES, enabled=True)
    await h.seed()
    await app.groups.update("etl", max_active_jobs=10)
    await app.manifests.disable("users")

    await app.manifests.reset_operator_overrides()

    assert (await app.groups.get("etl")).max_active_jobs == 2
    assert (await app.manifests.get("users")).enabled


async def test_a_limit_that_a_program_sets_at_run_time_stays_too(app: Railway, h: Harness) -> None:
    code = version(etl=2)
    await deploy(h, code)
    await app.manifests.schedule(
        app.sync_table, "users", USERS, FIVE_MINUTES, group=Group("etl", max_active_jobs=7)
    )

    await deploy(h, code)

    assert (await app.groups.get("etl")).max_active_jobs == 7


# Whose groups stay


async def test_a_start_of_one_app_leaves_the_groups_of_another(h: Harness) -> None:
    await deploy(h, version("b", etl=2))

    await deploy(h, version("a"))

    assert (await h.app.groups.get("etl")).max_active_jobs == 2
    assert await group_names(h) == ["etl"]


async def test_a_group_that_two_apps_declare_goes_with_the_last_of_them(h: Harness) -> None:
    await deploy(h, version("a", etl=2))
    await deploy(h, version("b", etl=2))

    await deploy(h, version("a"))
    after_one = await group_names(h)
    await deploy(h, version("b"))

    assert (after_one, await group_names(h)) == (["etl"], [])


async def test_a_rolling_deploy_keeps_the_groups_of_servers_that_still_run(app: Railway, h: Harness) -> None:
    old, new = version(etl=2), version()
    await deploy(h, old)
    await register_server(app, declares=declaration_digest(old.context.declarations.timetable()), now=h.now)

    await deploy(h, new)
    while_it_lives = await group_names(h)
    await h.advance(minutes=1)
    await deploy(h, new)

    assert (while_it_lives, await group_names(h)) == (["etl"], [])


async def test_a_group_made_by_a_queued_job_keeps_what_an_operator_set(app: Railway, h: Harness) -> None:
    await app.queue(app.sync_table, USERS, group="mail")
    await app.groups.update("mail", max_active_jobs=1, priority=9)
    await app.work_queue.cancel([entry.id for entry in await app.work_queue.list()])

    await h.seed()

    mail = await app.groups.get("mail")
    assert (mail.max_active_jobs, mail.priority, mail.retired_at) == (1, 9, None)


async def test_a_group_with_records_stays_until_they_are_deleted(app: Railway, h: Harness) -> None:
    await app.queue(app.sync_table, USERS, group="done")
    await h.run_until_idle()
    await h.seed()
    not_counted_yet = await group_names(h)
    await h.advance(minutes=10)
    await h.cycle("totals")
    await h.seed()
    counted = await group_names(h)
    assert [run.group for run in await app.executions.list()] == ["done"]

    store = await app.context.store.open()
    await store.call(lambda connection: connection.exec_driver_sql(DELETE_RUNS[store.dialect_name]))
    await h.seed()

    assert (not_counted_yet, counted, await group_names(h)) == (["done"], ["done"], [])


DELETE_RUNS = {"sqlite": "DELETE FROM trax_metadata", "postgresql": "DELETE FROM trax.metadata"}


@pytest.mark.parametrize("options", [{}, {"delay": timedelta(hours=1)}], ids=["ready", "delayed"])
async def test_a_group_with_a_queued_entry_stays(app: Railway, h: Harness, options: Any) -> None:
    await app.queue(app.sync_table, USERS, group="waiting", **options)

    await h.seed()

    assert await group_names(h) == ["waiting"]
    assert (await app.groups.get("waiting")).retired_at is None


@pytest.mark.parametrize("is_running", [False, True])
async def test_a_group_with_an_active_run_stays(app: Railway, h: Harness, *, is_running: bool) -> None:
    await app.queue(app.sync_table, USERS, group="busy")
    await h.cycle("job_dispatcher")
    if is_running:
        store = await app.context.store.open()
        run = tables_for(store.dialect_name).metadata
        running = run.update().values(state="in_progress", started_at=NOON)
        await store.call(lambda connection: connection.execute(running))

    await h.seed()

    assert (await app.groups.get("busy")).retired_at is None


async def test_a_group_of_a_dead_letter_stays(app: Railway, h: Harness) -> None:
    await app.queue(app.broken, USERS, group="letters", max_retries=0)
    await h.run_until_idle()
    (letter,) = await app.dead_letters.list()
    await app.dead_letters.acknowledge([letter.id], "known")
    store = await app.context.store.open()
    await store.call(lambda connection: connection.exec_driver_sql(DELETE_RUNS[store.dialect_name]))

    await h.seed()

    assert (await app.groups.get("letters")).retired_at is None


# What goes


async def test_a_group_that_nothing_needs_is_retired_and_audited_not_deleted(h: Harness) -> None:
    await deploy(h, version(etl=2, mail=3))

    await deploy(h, version(mail=3))

    etl = await h.app.groups.get("etl")
    assert (etl.max_active_jobs, etl.retired_at) == (2, NOON)
    assert await group_names(h) == ["mail"]
    (entry,) = await h.app.audit.list(action="groups.retire")
    assert (entry.actor, entry.ids) == ("declaration", ("etl",))


async def test_a_retired_group_comes_back_with_its_limit_when_a_job_is_queued_in_it(
    app: Railway, h: Harness
) -> None:
    await deploy(h, version(etl=1))
    before = await app.groups.get("etl")
    await deploy(h, version())

    await app.queue_many(app.sync_table, [USERS, USERS], group="etl")
    await h.cycle("job_dispatcher")

    assert await group_names(h) == ["etl"]
    assert len(await app.executions.list(state="pending")) == 1
    await h.run_until_idle()
    await h.advance(minutes=10)
    await h.cycle("totals")
    assert await app.groups.get("etl") == before


async def test_a_retired_group_comes_back_as_code_declares_it(h: Harness) -> None:
    await deploy(h, version(etl=2))
    await deploy(h, version())

    await deploy(h, version(etl=5))

    etl = await h.app.groups.get("etl")
    assert (etl.max_active_jobs, etl.retired_at) == (5, None)


async def test_a_retired_group_comes_back_when_an_operator_changes_it(h: Harness) -> None:
    await deploy(h, version(etl=2))
    await deploy(h, version())

    await h.app.groups.update("etl", max_active_jobs=4)
    await deploy(h, version())

    assert (await h.app.groups.get("etl")).retired_at is None


async def test_a_sweep_brings_back_a_group_whose_entry_it_had_not_seen(app: Railway, h: Harness) -> None:
    await deploy(h, version(etl=2))
    await deploy(h, version())
    group = await app.groups.get("etl")
    await insert(
        h,
        "work_queue",
        external_id="e" * 32,
        train="sync",
        status="queued",
        origin="queue",
        ready=True,
        created_at=NOON,
        group_id=group.id,
    )
    assert await group_names(h) == ["etl"]

    await deploy(h, version())

    assert (await app.groups.get("etl")).retired_at is None


async def test_more_groups_than_one_transaction_checks_are_retired(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_groups, "BATCH", 2)
    declared_groups._select_unused.cache_clear()  # pyright: ignore[reportPrivateUsage]
    await deploy(h, version(a=1, b=1, c=1, d=1, e=1))

    await deploy(h, version(c=1))

    declared_groups._select_unused.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert await group_names(h) == ["c"]


async def test_a_plan_lists_what_a_start_retires_and_what_operators_keep(app: Railway, h: Harness) -> None:
    await deploy(h, version(etl=2, mail=3, web=1))
    await h.app.groups.update("mail", max_active_jobs=10)
    await app.queue(app.sync_table, USERS, group="edited")
    await app.groups.update("edited", priority=9)
    await app.work_queue.cancel([entry.id for entry in await app.work_queue.list()])
    code = version(mail=3, web=4)

    store = await app.context.store.open()
    timetable, settings = code.context.declarations.timetable(), code.context.settings
    stored = await store.ask(load_stored, timetable, settings, app="default", now=h.now)
    changes = plan(timetable, stored, settings, now=h.now)

    found = [
        (one.verb, one.name, [(each.name, each.old, each.new) for each in one.differences]) for one in changes
    ]
    assert found == [
        ("change", "web", [("max_active_jobs", 1, 4)]),
        ("retire", "etl", []),
        ("keep", "mail", [("max_active_jobs", 10, 3)]),
    ]


# Groups that jobs make


async def test_a_job_queued_before_the_first_start_is_under_the_limit_that_code_declares(
    app: Railway, h: Harness
) -> None:
    app.group("etl", max_active_jobs=1, priority=4)

    await app.queue_many(app.sync_table, [USERS, USERS], group="etl")
    await h.cycle("job_dispatcher")

    assert len(await app.executions.list(state="pending")) == 1
    (group,) = await rows(h, "manifest_group")
    assert (group["max_active_jobs"], group["priority"], group["ad_hoc"]) == (1, 4, False)


async def test_a_manifest_made_before_the_first_start_is_under_the_limit_that_code_declares(
    app: Railway, h: Harness
) -> None:
    assert await rows(h, "manifest_group") == []
    app.group("etl", max_active_jobs=1)

    await app.manifests.schedule(app.sync_table, "users", USERS, FIVE_MINUTES, group="etl")

    assert (await app.groups.get("etl")).max_active_jobs == 1


async def test_jobs_make_no_more_groups_than_the_bound(
    app: Railway, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MAX_AD_HOC_GROUPS", 2)
    await app.queue(app.sync_table, USERS, group="one")
    await app.queue(app.sync_table, USERS, group="two")

    with pytest.raises(DefinitionError, match="group 'three' does not exist, and there are 2 groups already"):
        await app.queue(app.sync_table, USERS, group="three")
    await app.queue(app.sync_table, USERS, group="two")
    app.group("declared", max_active_jobs=1)
    await app.queue(app.sync_table, USERS, group="declared")
    await app.groups.update("one", priority=3)
    await app.queue(app.sync_table, USERS, group="three")

    assert await group_names(h) == ["declared", "one", "three", "two"]


# Manifests of two apps


def scheduling(name: str, external_id: str = "users", **options: Any) -> Railway:
    code = Railway(name=name)
    code.schedule(code.sync_table, external_id, USERS, FIVE_MINUTES, **options)
    return code


async def test_a_manifest_of_another_app_is_refused_while_that_app_lives(app: Railway, h: Harness) -> None:
    await deploy(h, scheduling("b"))
    await register_server(app, declares="b's", now=h.now, name="b")

    with pytest.raises(
        DefinitionError, match=r"'users' is declared by app 'b', which runs on here .* 'a' can"
    ):
        await deploy(h, scheduling("a"))
    with pytest.raises(DefinitionError, match="'users' is declared by app 'b'"):
        await deploy(h, scheduling("a", "people", renamed_from="users"))
    (row,) = await rows(h, "manifest")
    await h.advance(minutes=1)
    await deploy(h, scheduling("a"))
    (later,) = await rows(h, "manifest")

    assert (row["external_id"], row["app"], later["app"]) == ("users", "b", "a")


async def test_a_manifest_dropped_by_another_app_can_be_claimed(app: Railway, h: Harness) -> None:
    await deploy(h, scheduling("b"))
    await deploy(h, version("b"))
    await register_server(app, declares="b's", now=h.now, name="b")

    await deploy(h, scheduling("a"))

    (row,) = await rows(h, "manifest")
    assert (row["app"], row["retired_at"]) == ("a", None)
