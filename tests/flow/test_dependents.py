"""Manifests that run because another one succeeded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Cancel, Group, Item, every, exclude
from trax.records import Origin

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


def chain(url: str) -> ManagerHarness:
    """A every five minutes, B after A, C after B."""
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "A", "A", FIVE_MINUTES).then_include(h.job, "B", "B").then_include(h.job, "C", "C")
    return h


def pair(url: str) -> ManagerHarness:
    """A parent every five minutes, and its child."""
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "parent", "parent", FIVE_MINUTES).include(h.job, "child", "child")
    return h


async def test_a_dependent_runs_after_each_success_of_its_parent_and_only_then(url: str) -> None:
    async with pair(url) as h:
        assert await h.manage() == ["parent"]
        await run_queued(h)
        assert await h.manage() == ["child"]
        await h.advance(minutes=1)
        await run_queued(h)

        h.now = TEN + timedelta(minutes=4, seconds=59)
        assert await h.manage() == []
        h.now = TEN + timedelta(minutes=5)
        await h.run_until_idle()

        assert h.ran == ["parent", "child", "parent", "child"]


async def test_a_restart_does_not_run_a_dependent_again(url: str) -> None:
    async with pair(url) as h:
        await h.run_until_idle()

        await h.seed()
        await h.app.manifests.enable("child")

        assert await h.manage() == []


async def test_a_failed_or_running_parent_starts_no_dependents(url: str) -> None:
    async with pair(url) as h:

        async def look() -> None:
            await h.app.manifests.enable("child")
            assert await h.manage() == []

        h.during["parent"] = look
        await h.fails("parent")

        assert await h.manage() == ["parent"]


async def test_a_cancelled_parent_starts_no_dependents(url: str) -> None:
    async with pair(url) as h:
        h.errors["parent"] = Cancel("stopped")

        await h.run_until_idle()

        assert h.ran == ["parent"]


async def test_in_a_chain_each_waits_for_the_one_before(url: str) -> None:
    async with chain(url) as h:
        assert await h.manage() == ["A"]
        await run_queued(h)
        assert await h.manage() == ["B"]
        await run_queued(h)
        assert await h.manage() == ["C"]
        await run_queued(h)

        assert await h.manage() == []


async def test_a_failure_in_a_chain_holds_up_what_comes_after(url: str) -> None:
    async with chain(url) as h:
        await h.manage()
        await run_queued(h)

        await h.fails("B")
        assert await h.manage() == ["B"]
        await run_queued(h)
        assert h.ran == ["A", "B"]
        await h.app.manifests.disable("A")  # A once is enough
        await h.app.manifests.trigger("B")
        await h.run_until_idle()

        assert h.ran == ["A", "B", "B", "C"]


async def test_a_dependent_of_a_disabled_parent_waits_until_the_parent_is_enabled(url: str) -> None:
    async with pair(url) as h:
        await h.manage()
        await run_queued(h)
        await h.app.manifests.disable("parent")
        assert await h.manage() == []

        await h.app.manifests.enable("parent")

        assert await h.manage() == ["child"]


async def test_a_dependent_of_a_parent_that_never_succeeded_rests_when_the_parent_is_enabled(
    url: str,
) -> None:
    async with pair(url) as h:
        await h.app.manifests.disable("parent")
        await h.manage()

        await h.app.manifests.enable("parent")

        assert await h.manage() == ["parent"]


async def test_the_disabled_group_of_a_parent_does_not_hold_back_its_dependents(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "parent", "parent", FIVE_MINUTES, group="upstream")
    root.include(h.job, "child", "child")
    async with h:
        await h.manage()
        await run_queued(h)

        await h.app.groups.update("upstream", enabled=False)

        assert await h.manage() == ["child"]


async def test_a_dependent_in_a_disabled_group_waits_until_the_group_is_enabled(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "parent", "parent", FIVE_MINUTES)
    root.include(h.job, "child", "child", group=Group("off", enabled=False))
    async with h:
        await h.manage()
        await run_queued(h)
        assert await h.manage() == []

        await h.app.groups.update("off", enabled=True)

        assert await h.manage() == ["child"]


async def test_a_disabled_dependent_catches_up_once_when_it_is_enabled(url: str) -> None:
    async with pair(url) as h:
        await h.app.manifests.disable("child")
        for _ in range(3):
            await h.run_until_idle()
            await h.advance(minutes=4)
            await h.run_until_idle()
            await h.advance(minutes=1)
        await h.advance(minutes=-1)
        assert h.ran == ["parent"] * 3

        await h.app.manifests.enable("child")
        await h.run_until_idle()

        assert h.ran == ["parent"] * 3 + ["child"]


async def test_dependents_of_a_retired_parent_do_not_run_and_why_reports_it(url: str) -> None:
    async with pair(url) as h:
        await h.manage()
        await run_queued(h)
        await h.app.manifests.delete("parent")

        assert await h.manage() == []
        assert (await h.manifest("child")).depends_on == "parent"
        (reason,) = await h.app.why("child")
        assert (reason.code, reason.text) == (
            "parent_closed",
            "its parent is retired (it depends on 'parent')",
        )


async def test_dependents_that_are_queued_or_active_are_not_queued_again(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "root", "root", FIVE_MINUTES)
    for child in ("queued", "pending", "in_progress", "free"):
        root.include(h.job, child, child)
    async with h:
        await h.manage()
        await run_queued(h)
        h.insert_entry("queued")
        h.insert_run("pending", state="pending")
        h.insert_run("in_progress", state="in_progress")

        assert await h.manage() == ["free"]


async def test_a_dependent_with_a_dead_letter_waits_for_a_person(url: str) -> None:
    async with pair(url) as h:
        await h.manage()
        await run_queued(h)
        await h.app.manifests.disable("parent")
        await h.app.manifests.enable("parent")
        h.change_manifest("parent", next_due_at=None)
        letter = await h.dead_letter("child")

        await h.app.manifests.trigger("parent")
        await run_queued(h)
        assert await h.manage() == []
        await h.app.dead_letters.acknowledge([letter.id], "seen")

        assert await h.manage() == ["child"]


async def test_a_success_of_the_parent_during_a_run_of_the_dependent_is_not_lost(url: str) -> None:
    """The parent succeeds at 10:00 and 10:05; the dependent, begun at 10:01, ends at 10:10."""
    async with pair(url) as h:
        await h.manage()
        await run_queued(h)
        assert await h.manage() == ["child"]
        await h.advance(minutes=1)

        async def meanwhile() -> None:
            h.during.clear()
            h.now = TEN + timedelta(minutes=5)
            assert await h.manage() == ["parent"]
            await run_queued(h)
            assert await h.manage() == [], "it is still running"
            h.now = TEN + timedelta(minutes=10) - timedelta(seconds=1)

        h.during["child"] = meanwhile
        await run_queued(h)

        assert await h.manage() == ["child"]
        await run_queued(h)
        assert await h.manage() == []


async def test_a_success_of_the_parent_during_a_retry_of_the_dependent_is_not_lost(url: str) -> None:
    async with pair(url) as h:
        await h.manage()
        await run_queued(h)
        await h.fails("child")
        assert await h.manage() == ["child"]
        assert h.entry("child").origin is Origin.RETRY
        await h.advance(minutes=5)
        assert await h.manage() == ["parent"]
        await run_queued(h)

        assert await h.manage() == ["child"], "the retry was for the success before"
        await run_queued(h)
        assert await h.manage() == []


async def test_a_dependent_of_a_once_manifest_runs_after_its_success(url: str) -> None:
    h = ManagerHarness(url, TEN)
    once = h.app.schedule_once(h.job, "migrate", "migrate", delay=timedelta(0))
    once.include_many(h.job, "warm", [Item("up", "warm-up", depends_on="migrate")])
    async with h:
        await h.run_until_idle()

        assert h.ran == ["migrate", "warm-up"]
        assert not (await h.manifest("migrate")).enabled
        assert (await h.manifest("warm-up")).enabled


async def test_many_dependents_of_one_parent_all_run(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "root", "root", FIVE_MINUTES)
    root.include_many(h.job, "leaf", {f"{number}": f"{number}" for number in range(20)})
    async with h:
        await h.run_until_idle()

        assert sorted(h.ran[1:], key=int) == [str(number) for number in range(20)]


async def test_an_exclusion_does_not_hold_back_a_dependent_nor_its_retry(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "parent", "parent", FIVE_MINUTES)
    root.include(h.job, "child", "child", exclude=exclude.days_of_week("mon"))
    async with h:
        await h.manage()
        await run_queued(h)

        await h.fails("child")

        assert await h.manage() == ["child"]
        assert h.entry("child").scheduled_at == h.now + timedelta(minutes=5)


async def test_a_cancelled_retry_of_a_dependent_waits_for_the_next_success_of_its_parent(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "parent", "parent", every(days=1)).include(h.job, "child", "child")
    async with h:
        await h.manage()
        await run_queued(h)
        await h.fails("child")
        h.errors["child"] = Cancel("stopped")
        for _ in range(10):
            await h.run_until_idle()
            await h.advance(hours=2)
        assert h.ran == ["parent", "child", "child"], "no retry follows a retry that was cancelled"
        assert (await h.manifest("child")).failure_count == 1

        h.errors.clear()
        await h.advance(hours=4)
        await h.run_until_idle()

        assert h.ran == ["parent", "child", "child", "parent", "child"]
        assert (await h.manifest("child")).failure_count == 0


async def test_a_cancelled_dependent_waits_for_the_next_success_of_its_parent(url: str) -> None:
    async with pair(url) as h:
        h.errors["child"] = Cancel("stopped")
        await h.run_until_idle()
        assert h.ran == ["parent", "child"]

        await h.advance(minutes=5)
        await h.run_until_idle()

        assert h.ran == ["parent", "child"] * 2
