from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.flow_seeding import register_server

from trax import Item, Trax, cron, every, fire_all
from trax.errors import DefinitionError
from trax.inspect.plan import Difference, PlannedChange, StoredTimetable, load_stored, plan, plan_start
from trax.store.manifests.manifest_seed import ManifestUsage
from trax.testing import Harness


def version(url: str, *, declare: bool = True) -> tuple[Trax, Any]:
    app = Trax(url)

    @app.train
    async def greet(name: str) -> None:
        raise AssertionError(name)

    if declare:
        app.schedule(greet, "ada", "Ada", every(hours=1), group="people")
        app.schedule(greet, "grace", "Grace", cron("0 7 * * *"), group="people")
    return app, greet


async def planned(running: Trax, wanted: Trax, now: datetime) -> list[PlannedChange]:
    """What starting the one would change in the database of the other."""
    store = await running.context.store.open()
    timetable, settings = wanted.context.declarations.timetable(), wanted.context.settings
    app = wanted.context.name
    found = await store.ask(load_stored, timetable, settings, app=app, now=now)
    return plan(timetable, found, settings, now=now, app=app)


async def test_a_plan_after_seeding_is_empty(url: str) -> None:
    app, _ = version(url)
    async with Harness(app) as h:
        assert await planned(app, app, h.now) == []


async def test_a_start_changes_what_the_plan_lists(url: str) -> None:
    app, _ = version(url)
    later, greet = version("memory://", declare=False)
    later.schedule(greet, "ada", "Ada", every(hours=2), group="ladies")
    later.schedule(greet, "edith", "Edith", every(hours=1)).include(greet, "after", "After")
    async with Harness(app) as h:
        changes = await planned(app, later, h.now)

    by_name = {(one.kind, one.name): one for one in changes}
    assert {key: one.verb for key, one in by_name.items()} == {
        ("manifest", "grace"): "retire",
        ("group", "ladies"): "add",
        ("group", "edith"): "add",
        ("group", "after"): "add",
        ("manifest", "ada"): "change",
        ("manifest", "edith"): "add",
        ("manifest", "after"): "add",
    }
    assert by_name["manifest", "ada"].differences == (
        Difference("group", "people", "ladies"),
        Difference("interval_seconds", 3600, 7200),
    )
    assert len(by_name["manifest", "edith"].next_runs) == 5
    assert by_name["manifest", "after"].next_runs == ()


async def test_the_plan_shows_when_cron_schedules_start_and_continue(url: str) -> None:
    app, greet = version(url)
    app.schedule(greet, "daily", "Daily", cron("0 8 * * *"), on_misfire=fire_all(10), start="now")
    later, greet_later = version("memory://")
    later.schedule(greet_later, "daily", "Daily", cron("30 * * * *"), on_misfire=fire_all(10))
    later.schedule(greet_later, "new", "New", cron("15 * * * *"))
    later.schedule(greet_later, "eager", "Eager", cron("15 * * * *"), start="now")
    async with Harness(app, now=datetime(2027, 3, 1, 12, tzinfo=UTC)) as h:
        await h.cycle("manifest_manager")
        await h.advance(days=1)

        changes = await planned(app, later, h.now)

        first = {one.name: one.next_runs[0].at - h.now for one in changes if one.next_runs}
        assert first == {
            "daily": timedelta(minutes=30),
            "new": timedelta(minutes=15),
            "eager": timedelta(0),
        }


async def test_a_group_goes_when_nothing_is_left_in_it_and_stays_with_what_is_retired(url: str) -> None:
    app, _ = version(url)
    app.group("empty")
    later, _ = version("memory://", declare=False)
    async with Harness(app) as h:
        changes = await planned(app, later, h.now)

    assert [(one.verb, one.name) for one in changes] == [
        ("retire", "ada"),
        ("retire", "grace"),
        ("retire", "empty"),
    ]


async def test_a_change_of_parent_is_seen(url: str) -> None:
    app, _ = version(url)
    later, greet = version("memory://", declare=False)
    later.schedule(greet, "ada", "Ada", every(hours=1), group="people").include(
        greet, "grace", "Grace", group="people"
    )
    async with Harness(app) as h:
        [change] = await planned(app, later, h.now)

    assert change.name == "grace"
    assert Difference("depends_on", None, "ada") in change.differences


async def test_a_plan_shows_operator_overrides_separately(url: str) -> None:
    app, _ = version(url)
    async with Harness(app) as h:
        await app.manifests.disable("ada")
        await app.groups.update("people", max_active_jobs=3)

        changes = await planned(app, app, h.now)

    assert changes == [
        PlannedChange(
            verb="keep",
            kind="group",
            name="people",
            differences=(Difference("max_active_jobs", 3, None),),
        ),
        PlannedChange(
            verb="keep",
            kind="manifest",
            name="ada",
            differences=(Difference("enabled", False, True),),
        ),
    ]


async def test_a_retired_parent_is_refused_as_at_the_start(url: str, now: datetime) -> None:
    app, _ = version(url)
    later, greet = version("memory://", declare=False)
    later.context.declarations.after("ada").include(greet, "child", "Child")

    async with Harness(app):
        with pytest.raises(DefinitionError, match="'child' depends on 'ada', which is retired"):
            await planned(app, later, now)


async def test_an_empty_database_gets_everything_and_stays_empty(empty_url: str) -> None:
    app, _ = version(empty_url)

    first = await plan_start(app.context)
    again = await plan_start(app.context)

    assert [(one.verb, one.name) for one in first] == [("add", "people"), ("add", "ada"), ("add", "grace")]
    assert [one.name for one in again] == [one.name for one in first]
    assert plan(
        app.context.declarations.timetable(),
        StoredTimetable(),
        app.context.settings,
        now=first[1].next_runs[0].at,
    )


async def test_a_circle_through_what_is_stored_is_refused_as_at_the_start(url: str) -> None:
    app, greet = version(url)
    later, greet_later = version("memory://", declare=False)
    backwards = [Item("a", "Ada", depends_on="child")]
    later.schedule(greet_later, "root", "Root", every(hours=1)).include_many(greet_later, "ad", backwards)
    async with Harness(app) as h:
        await app.manifests.schedule(greet, "ad-a", "Ada", every(hours=1))
        await app.manifests.schedule_dependent(greet, "child", "Child", "ad-a")

        with pytest.raises(DefinitionError, match="in a cycle"):
            await planned(app, later, h.now)


async def test_a_planned_retirement_shows_what_it_affects_and_which_servers_delay_it(url: str) -> None:
    app, greet = version(url)
    later, _ = version("memory://", declare=False)
    async with Harness(app) as h:
        await app.manifests.schedule_dependent(greet, "after-ada", "After", "ada")
        await app.manifests.trigger("ada")
        await h.cycle("job_dispatcher")
        await app.manifests.trigger("ada")
        await app.manifests.trigger("ada", delay=timedelta(hours=1))
        ada, grace = await planned(app, later, h.now)
        await register_server(app, pid=7, declares="another set", now=h.now)
        waiting, _ = await planned(app, later, h.now)

    assert ada.touches == ManifestUsage(queued=2, active=1, dead_letters=0, dependents=("after-ada",))
    assert (grace.touches, grace.once_stopped) == (ManifestUsage(), ())
    assert waiting.once_stopped == ("here (process 7)",)


async def test_a_plan_shows_renames_and_returns_as_such(url: str) -> None:
    app, _ = version(url)
    later, greet = version("memory://", declare=False)
    later.schedule(greet, "lovelace", "Ada", every(hours=1), group="people", renamed_from="ada")
    later.schedule(greet, "grace", "Grace", cron("0 7 * * *"), group="people")
    async with Harness(app) as h:
        await app.manifests.delete("grace")
        changes = await planned(app, later, h.now)

    assert [(one.verb, one.name) for one in changes] == [("rename", "lovelace"), ("return", "grace")]
    assert changes[0].differences == (Difference("external_id", "ada", "lovelace"),)
    assert changes[1].differences == (Difference("retired_at", h.now, None),)
    assert changes[1].next_runs[0].at.hour == 7
