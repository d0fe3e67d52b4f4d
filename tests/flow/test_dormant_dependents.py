"""Dormant dependents: idle until a run of their parent wakes them, with an input made there and then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Group, InvalidInput, Item, NotFound, current, every
from trax.errors import DefinitionError
from trax.records import Origin, State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from trax import DeadLetter
    from trax.train import Run

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


def build_harness(url: str, *, priority: int = 0) -> ManagerHarness:
    """`scan` every five minutes, with the dormant `load-a`, `load-b`, `load-c`, and others beside it."""
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "scan", "scan", FIVE_MINUTES)
    loads = [Item(one, f"stored-{one}", depends_on="scan") for one in "abc"]
    root.include_many(h.job, "load", loads, dormant=True, group=Group("loads", priority=priority))
    root.include(h.job, "plain", "plain")
    other = h.schedule(h.job, "other", "other", FIVE_MINUTES, enabled=False)
    other.include(h.job, "foreign", "foreign", dormant=True)
    return h


def this_run() -> Run:
    run = current()
    assert run is not None
    return run


def waking(*wanted: tuple[str, Any], force: bool = False) -> Callable[[], Awaitable[int]]:
    async def activate() -> int:
        return await this_run().activate_many(wanted, force=force)

    return activate


async def test_a_synchronous_junction_activates_dependents_from_its_thread(url: str) -> None:
    h = ManagerHarness(url, TEN)
    woken: list[int] = []

    @h.app.train
    def scan(_: str) -> None:
        woken.append(this_run().sync.activate("load-a", "made now"))
        woken.append(this_run().sync.activate_many([("load-a", "again"), ("load-b", "made now")]))

    loads = [Item(one, f"stored-{one}", depends_on="scan") for one in "abc"]
    h.schedule(scan, "scan", "scan", FIVE_MINUTES).include_many(
        h.job, "load", loads, dormant=True, group="loads"
    )
    async with h:
        await held(h)
        await h.run_until_idle()

        assert woken == [1, 1], "what is queued already is passed over"
        assert dormant(h) == {"load-a": "made now", "load-b": "made now"}


async def test_a_refused_activation_in_a_synchronous_junction_fails_the_run(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train
    def scan(_: str) -> None:
        this_run().sync.activate_many([("load-a", "made now"), ("unknown", "made now")])

    root = h.schedule(scan, "scan", "scan", FIVE_MINUTES)
    root.include(h.job, "load-a", "stored", dormant=True, group="loads")
    async with h:
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="scan")
        assert (run.state, run.failure_exception) == (State.FAILED, "NotFound")
        assert dormant(h) == {}


async def test_a_synchronous_junction_without_a_manifest_activates_no_dependents(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train
    def scan(_: str) -> int:
        return this_run().sync.activate("load-a", "made now")

    async with h:
        assert await h.app.run(scan, "scan") == 0

        assert "no dependents to activate" in caplog.text


async def scanning(h: ManagerHarness, *wanted: tuple[str, Any], force: bool = False) -> None:
    """One run of `scan` that wakes these."""
    h.during["scan"] = waking(*wanted, force=force)
    await h.app.manifests.trigger("scan")
    await run_queued(h)


def dormant(h: ManagerHarness) -> dict[str | None, Any]:
    """The entries written by an activation: manifest and input."""
    return {entry.manifest: entry.input for entry in h.queued() if entry.origin is Origin.DORMANT}


async def held(h: ManagerHarness) -> None:
    """Keep woken entries in the queue, to look at them."""
    await h.app.groups.update("loads", enabled=False)


async def refusal(h: ManagerHarness) -> str | None:
    """What the last run of `scan` failed with."""
    runs = await h.app.executions.list(train="job")
    return next(run.failure_exception for run in runs if run.manifest == "scan")


async def test_a_dormant_dependent_does_not_run_after_a_success_of_its_parent(url: str) -> None:
    async with build_harness(url) as h:
        await h.run_until_idle()
        await h.app.manifests.enable("load-a")
        await h.run_until_idle()

        assert h.ran == ["scan", "plain"]


async def test_an_activated_dependent_is_queued_with_its_input_before_others(url: str) -> None:
    async with build_harness(url, priority=10) as h:
        await held(h)

        await scanning(h, ("load-a", "rows 1 to 9"))

        entry = h.entry("load-a")
        assert (entry.input, entry.train, entry.group) == ("rows 1 to 9", "job", "loads")
        assert (entry.origin, entry.priority, entry.scheduled_at) == (Origin.DORMANT, 26, None)


async def test_the_boost_ends_at_the_highest_priority(url: str) -> None:
    async with build_harness(url, priority=20) as h:
        await held(h)

        await scanning(h, ("load-a", "x"))

        assert h.entry("load-a").priority == 31


async def test_an_activated_dependent_runs_once_and_becomes_dormant_again(url: str) -> None:
    async with build_harness(url) as h:
        await scanning(h, ("load-a", "A"), ("load-c", "C"))
        h.during.clear()
        await h.run_until_idle()
        await h.advance(minutes=5)
        await h.run_until_idle()

        assert (h.ran.count("A"), h.ran.count("C"), h.ran.count("scan")) == (1, 1, 2)
        assert not any(name.startswith("stored") for name in h.ran)


async def test_activate_returns_the_number_of_activated_manifests(url: str) -> None:
    counts: list[int] = []

    async def activate() -> None:
        run = this_run()
        counts.append(await run.activate("load-a", "A"))
        counts.append(await run.activate("load-a", "A"))
        counts.append(await run.activate_many([("load-a", "A"), ("load-b", "B"), ("load-c", "C")]))
        counts.append(await run.activate_many([]))

    async with build_harness(url) as h:
        h.during["scan"] = activate
        await h.manage()
        await run_queued(h)

    assert counts == [1, 0, 2, 0]


async def test_a_refused_activation_leaves_no_entries(url: str) -> None:
    async with build_harness(url) as h:
        for wrong, error in {
            "load-z": NotFound,
            "plain": DefinitionError,
            "scan": DefinitionError,
            "foreign": DefinitionError,
        }.items():
            await scanning(h, ("load-a", "A"), (wrong, "x"), ("load-b", "B"))

            assert await refusal(h) == error.__name__
            assert dormant(h) == {}
        assert h.ran == ["scan"] * 4


async def test_an_activation_with_an_invalid_input_leaves_no_entries(url: str) -> None:
    async with build_harness(url) as h:
        await scanning(h, ("load-a", "A"), ("load-b", 7))

        assert await refusal(h) == InvalidInput.__name__
        assert dormant(h) == {}


async def test_an_activation_with_an_oversized_input_leaves_no_entries(url: str) -> None:
    async with build_harness(url) as h:
        await h.app.settings.update(max_input_bytes=20)

        await scanning(h, ("load-a", "A"), ("load-b", "x" * 19))

        assert await refusal(h) == InvalidInput.__name__
        assert dormant(h) == {}


async def test_activations_of_a_run_that_fails_later_remain(url: str) -> None:
    async with build_harness(url) as h:
        await held(h)
        h.errors["scan"] = RuntimeError("later on")

        await scanning(h, ("load-a", "A"))

        assert dormant(h) == {"load-a": "A"}


async def test_outside_a_scheduled_run_activation_does_nothing_and_warns(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with build_harness(url) as h:
        h.during["scan"] = waking(("load-a", "A"))

        await h.app.run(h.job, "scan")
        await h.app.queue(h.job, "scan")
        await h.app.manifests.disable("scan")
        await run_queued(h)

        assert h.ran == ["scan", "scan"]
        assert dormant(h) == {}
        assert (
            caplog.messages.count("train 'job': this run has no manifest, so no dependents to activate") == 2
        )


async def test_queued_and_active_dependents_are_skipped_and_the_others_activated(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with build_harness(url) as h:
        await held(h)
        await scanning(h, ("load-a", "first"))
        h.insert_run("load-b")

        await scanning(h, ("load-a", "again"), ("load-b", "B"), ("load-c", "C"))

        assert dormant(h) == {"load-a": "first", "load-c": "C"}
        assert "manifest 'load-a' was not activated: it already has a queued entry" in caplog.messages
        assert "manifest 'load-b' was not activated: it has an active run" in caplog.messages


async def test_a_dead_letter_refuses_activation_unless_it_is_forced(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with build_harness(url) as h:
        h.change_manifest("load-a", max_retries=1)
        h.errors["bad"] = RuntimeError("no luck")
        await scanning(h, ("load-a", "bad"))
        await h.manage()
        assert [letter.manifest for letter in await h.letters()] == ["load-a"]
        await held(h)

        await scanning(h, ("load-a", "good"), ("load-b", "B"))
        assert dormant(h) == {"load-b": "B"}
        assert "manifest 'load-a' was not activated: its dead letter awaits an operator" in caplog.messages

        await scanning(h, ("load-a", "good"), force=True)
        assert dormant(h) == {"load-a": "good", "load-b": "B"}


async def fail_for_good(h: ManagerHarness, external_id: str, value: str) -> None:
    """Wake it with an input that it fails with, until it gives up; nothing else runs meanwhile."""
    h.errors[value] = RuntimeError("no luck")
    await scanning(h, (external_id, value))
    await h.app.manifests.disable("scan")
    for _ in range(3):
        await h.manage()
        h.now = max([h.now, *(entry.scheduled_at or h.now for entry in h.queued(external_id))])
        await run_queued(h)


async def test_a_failed_dormant_run_is_retried_with_its_activation_input(url: str) -> None:
    async with build_harness(url, priority=10) as h:
        h.errors["rows 1 to 9"] = RuntimeError("no luck")
        await scanning(h, ("load-a", "rows 1 to 9"), ("load-b", "B"))

        assert "load-a" in await h.manage()

        retry = h.entry("load-a")
        assert (retry.origin, retry.input, retry.priority) == (Origin.RETRY, "rows 1 to 9", 26)
        assert retry.scheduled_at == h.now + timedelta(minutes=5)
        h.errors.clear()
        await h.advance(minutes=5)
        await run_queued(h)
        assert h.ran.count("rows 1 to 9") == 2
        assert (await h.manifest("load-a")).failure_count == 0


async def test_a_dormant_run_is_retried_with_its_input_though_inputs_are_not_saved(url: str) -> None:
    async with build_harness(url) as h:
        await h.app.settings.update(save_inputs=False)
        h.errors["secret"] = RuntimeError("no luck")
        await scanning(h, ("load-a", "secret"))

        await h.manage()

        assert h.entry("load-a").input == "secret"


async def test_a_dormant_run_that_timed_out_is_retried_with_its_input(url: str) -> None:
    async with build_harness(url) as h:
        h.change_manifest("load-a", timeout_seconds=60)

        async def overstay() -> None:
            await h.advance(seconds=61)
            await h.cycle("manifest_manager")  # it is asked to stop
            await h.cycle("manifest_manager")  # its worker hears of it
            await asyncio.Event().wait()

        h.during["slow"] = overstay
        await scanning(h, ("load-a", "slow"))
        await h.app.manifests.disable("scan")

        await h.manage()

        assert (h.entry("load-a").origin, h.entry("load-a").input) == (Origin.RETRY, "slow")


async def test_a_dormant_run_that_keeps_failing_becomes_a_dead_letter_with_its_input(url: str) -> None:
    async with build_harness(url) as h:
        await fail_for_good(h, "load-a", "bad")

        (letter,) = await h.letters()
        assert (letter.manifest, letter.retry_count, letter.input) == ("load-a", 3, "bad")
        assert (h.ran.count("bad"), h.queued("load-a")) == (3, [])


async def test_a_requeued_dormant_run_has_the_input_it_failed_with(url: str) -> None:
    async with build_harness(url) as h:
        await fail_for_good(h, "load-a", "bad")
        h.errors.clear()
        (letter,) = await h.letters()

        await h.app.dead_letters.requeue([letter.id])
        await run_queued(h)

        assert (h.ran.count("bad"), h.ran.count("stored-a")) == (4, 0)


async def test_a_retry_that_waits_is_not_replaced_by_another_activation(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with build_harness(url) as h:
        h.errors["first"] = RuntimeError("no luck")
        await scanning(h, ("load-a", "first"))
        await h.manage()

        await scanning(h, ("load-a", "second"))

        assert h.entry("load-a").input == "first"
        assert "manifest 'load-a' was not activated: it already has a queued entry" in caplog.messages


async def test_a_disabled_dormant_dependent_can_be_activated(url: str) -> None:
    async with build_harness(url) as h:
        await h.app.manifests.disable("load-a")

        await scanning(h, ("load-a", "A"))

        assert "A" in h.ran


async def test_activating_a_dependent_twice_queues_it_once_with_the_last_input(url: str) -> None:
    async with build_harness(url) as h:
        await held(h)

        await scanning(h, ("load-a", "first"), ("load-a", "last"))

        assert dormant(h) == {"load-a": "last"}


async def test_a_nested_run_activates_dependents_of_the_outer_manifest(url: str) -> None:
    manifests: list[str | None] = []

    async def activate() -> None:
        manifests.append(this_run().manifest)
        await this_run().activate("load-a", "A")

    async with build_harness(url) as h:
        await held(h)
        h.during["scan"] = lambda: h.app.run(h.job, "inner")
        h.during["inner"] = lambda: h.app.run(h.job, "innermost")
        h.during["innermost"] = activate

        await h.app.manifests.trigger("scan")
        await run_queued(h)

        assert manifests == ["scan"]
        assert dormant(h) == {"load-a": "A"}
        records = {record.input: record for record in await h.app.executions.list(train="job")}
        assert [records[name].manifest for name in ("scan", "inner", "innermost")] == ["scan", None, None]


async def test_a_run_nested_in_a_synchronous_one_activates_dependents_of_the_outer_manifest(
    url: str,
) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train
    def inner(value: str) -> int:
        return this_run().sync.activate("load-a", value)

    @h.app.train
    def scan(value: str) -> int:
        return h.app.sync.run(inner, value)

    h.schedule(scan, "scan", "A", FIVE_MINUTES).include(h.job, "load-a", "stored", dormant=True)
    async with h:
        await h.run_until_idle()

        assert h.ran == ["A"]


async def test_an_activated_dependent_cannot_activate_its_siblings(url: str) -> None:
    async with build_harness(url) as h:
        h.during["A"] = waking(("load-b", "B"))

        await scanning(h, ("load-a", "A"))

        (failed,) = await h.app.executions.list(train="job", state=State.FAILED)
        assert (failed.manifest, failed.failure_exception) == ("load-a", "DefinitionError")
        assert "B" not in h.ran


async def letter_of(h: ManagerHarness, woken_with: str) -> DeadLetter:
    """Have a dormant one give up after it was woken with this."""
    h.change_manifest("load-a", max_retries=1)
    h.errors[woken_with] = RuntimeError("no luck")
    await scanning(h, ("load-a", woken_with))
    h.during.clear()
    await h.cycle("manifest_manager")
    h.errors.clear()
    (letter,) = await h.letters("awaiting_intervention")
    return letter


async def test_a_dead_letter_shows_and_requeues_the_activation_input(url: str) -> None:
    async with build_harness(url) as h:
        letter = await letter_of(h, "rows 1 to 9")

        await h.app.dead_letters.requeue([letter.id])

        entry = h.entry("load-a")
        assert (letter.input, entry.input, entry.dead_letter_id) == (
            "rows 1 to 9",
            "rows 1 to 9",
            letter.id,
        )


async def test_a_requeued_letter_does_not_vanish_into_an_activation_with_another_input(url: str) -> None:
    async with build_harness(url) as h:
        letter = await letter_of(h, "rows 1 to 9")
        await held(h)
        await scanning(h, ("load-a", "rows 10 to 19"), force=True)

        await h.app.dead_letters.requeue([letter.id])

        inputs = {entry.input: entry.dead_letter_id for entry in h.queued("load-a")}
        assert inputs == {"rows 10 to 19": None, "rows 1 to 9": letter.id}
