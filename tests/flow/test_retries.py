"""After a failed or cancelled run: a retry, a dead letter, or the next occurrence."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Cancel, Retry, RetryAfter, RunTimedOut, cron, current, every, exclude, junction
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.records import Origin, State

if TYPE_CHECKING:
    from typing import Any, Unpack

    from trax.schedule.declaration import ScheduleKeywords

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
OFTEN = every(seconds=30)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2027, 3, 1, hour, minute, tzinfo=UTC)


def build_harness(url: str, **how: Unpack[ScheduleKeywords]) -> ManagerHarness:
    made = ManagerHarness(url, TEN)
    made.schedule(made.job, "sync", "sync", FIVE_MINUTES, **how)
    return made


async def waits(h: ManagerHarness, times: int) -> list[timedelta]:
    """Fail so many times; how long each retry was told to wait."""
    told: list[timedelta] = []
    for _ in range(times):
        await h.fails("sync")
        failed_at = h.now
        assert await h.manage() == ["sync"]
        entry = h.entry("sync")
        assert entry.origin is Origin.RETRY
        told.append((entry.scheduled_at or h.now) - failed_at)
    return told


async def test_each_failure_doubles_the_wait_up_to_an_hour(url: str) -> None:
    async with build_harness(url, max_retries=10) as h:
        assert await waits(h, 6) == [minutes(number) for number in (5, 10, 20, 40, 60, 60)]


async def test_a_manifests_own_waits_override_the_apps(url: str) -> None:
    own = Retry(max_attempts=5, delay=minutes(1), multiplier=3, max_delay=minutes(7))
    async with build_harness(url, retry=own) as h:
        assert await waits(h, 4) == [minutes(number) for number in (1, 3, 7, 7)]


async def test_jitter_only_ever_adds_to_a_wait(url: str) -> None:
    async with build_harness(url, retry=Retry(delay=minutes(10), jitter=0.5)) as h:
        (told,) = await waits(h, 1)

        assert minutes(10) <= told <= minutes(15)


async def test_retries_of_simultaneous_failures_are_spread_by_jitter(url: str) -> None:
    h = ManagerHarness(url, TEN)
    retry = Retry(delay=minutes(10), max_delay=minutes(12), jitter=0.5)
    h.app.schedule_many(h.job, "many", {f"{n}": "x" for n in range(40)}, FIVE_MINUTES, retry=retry)
    h.errors["x"] = RuntimeError("no luck")
    async with h:
        await h.manage()
        await run_queued(h)
        assert len(await h.manage()) == 40

        told = [(entry.scheduled_at or h.now) - h.now for entry in h.queued()]
        assert all(minutes(10) <= each <= minutes(12) for each in told)
        assert len(set(told)) > 1, "each waits its own time"


async def test_a_retry_does_not_run_before_its_moment(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync")
        await h.run_until_idle()
        await h.advance(minutes=4, seconds=59)
        await h.run_until_idle()
        assert len(h.ran) == 1

        await h.advance(seconds=1)
        await h.run_until_idle()

        assert len(h.ran) == 2


async def test_a_retry_is_a_new_record_that_knows_how_many_came_before(url: str) -> None:
    attempts: list[int] = []

    async def note() -> None:
        run = current()
        assert run is not None
        attempts.append(run.attempt)

    async with build_harness(url) as h:
        h.during["sync"] = note
        await h.fails("sync", 2)
        await h.manage()
        await h.advance(minutes=10)
        await run_queued(h)

        assert attempts == [1, 2, 3]
        runs = await h.app.executions.list(train="job")
        assert [run.state for run in runs] == [State.COMPLETED, State.FAILED, State.FAILED]


async def test_a_retry_is_for_the_occurrence_that_failed(url: str) -> None:
    occurrences: list[datetime | None] = []

    async def note() -> None:
        run = current()
        assert run is not None
        occurrences.append(run.scheduled_for)

    async with build_harness(url) as h:
        h.during["sync"] = note
        await h.fails("sync", 2)

        assert occurrences == [TEN, TEN]


async def test_the_third_failure_of_three_makes_a_dead_letter_and_no_entry(url: str) -> None:
    async with build_harness(url, max_retries=3) as h:
        await h.fails("sync", 3)

        managed = await h.cycle("manifest_manager")

        assert managed.queued == []
        (letter,) = await h.letters()
        assert managed.dead_letters == [letter.id]
        assert (letter.manifest, letter.train, letter.input) == ("sync", "job", "sync")
        assert (letter.status, letter.retry_count) == ("awaiting_intervention", 3)
        assert letter.reason == "failed 3 times in a row; max_attempts is 3"
        assert letter.dead_lettered_at == h.now
        assert len(h.ran) == 3


async def test_a_manifest_gives_up_once(url: str) -> None:
    async with build_harness(url, max_retries=1) as h:
        await h.dead_letter("sync")

        await h.app.manifests.enable("sync")
        await h.advance(days=1)
        await h.run_until_idle()

        assert len(await h.letters()) == 1
        assert len(h.ran) == 1


async def test_with_zero_retries_the_first_failure_is_the_last(url: str) -> None:
    h = ManagerHarness(url, TEN)
    for max_retries in (0, 1):
        h.schedule(h.job, f"{max_retries}", "x", FIVE_MINUTES, max_retries=max_retries)
    h.errors["x"] = RuntimeError("no luck")
    async with h:
        await h.run_until_idle()

        assert {letter.manifest: letter.retry_count for letter in await h.letters()} == {"0": 1, "1": 1}
        assert h.queued() == []


async def test_a_manifest_that_never_fails_never_gives_up(url: str) -> None:
    async with build_harness(url, max_retries=0) as h:
        for _ in range(3):
            await h.run_until_idle()
            await h.advance(minutes=5)

        assert (len(h.ran), await h.letters()) == (3, [])


async def test_only_failures_in_a_row_count(url: str) -> None:
    async with build_harness(url, max_retries=3) as h:
        await h.fails("sync", 2)
        await h.manage()
        await h.advance(minutes=10)
        await run_queued(h)
        assert (await h.manifest("sync")).failure_count == 0

        await h.advance(minutes=5)
        await h.fails("sync", 2)

        assert await h.manage() == ["sync"]
        assert await h.letters() == []


@pytest.mark.parametrize("resolve", ["requeue", "acknowledge"])
async def test_failures_before_a_resolution_do_not_count(url: str, resolve: str) -> None:
    async with build_harness(url, max_retries=2) as h:
        letter = await h.dead_letter("sync")

        if resolve == "requeue":
            await h.app.dead_letters.requeue([letter.id])
        else:
            await h.app.dead_letters.acknowledge([letter.id], "seen")
        await h.fails("sync")

        assert (await h.manifest("sync")).failure_count == 1
        assert await h.manage() == ["sync"]


async def test_failures_may_count_until_a_person_has_dealt_with_them(url: str) -> None:
    h = ManagerHarness(url, TEN, failure_counting="lifetime")
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=3)
    async with h:
        await h.fails("sync", 2)
        await h.run_until_idle()
        await h.advance(minutes=10)
        await h.run_until_idle()
        assert (await h.manifest("sync")).failure_count == 0, "it succeeded in between"

        await h.advance(minutes=5)
        await h.fails("sync")
        await h.manage()

        (letter,) = await h.letters()
        assert (letter.retry_count, h.queued()) == (3, [])
        assert letter.reason == "failed 3 times since the last intervention; max_attempts is 3"
        await h.app.dead_letters.acknowledge([letter.id], "seen")
        await h.fails("sync", 2)
        await h.manage()
        assert len(await h.letters()) == 1, "the count began anew"


async def test_waits_grow_with_the_failures_in_a_row_however_they_are_counted(url: str) -> None:
    h = ManagerHarness(url, TEN, failure_counting="lifetime")
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=9)
    async with h:
        await h.fails("sync", 2)
        await h.run_until_idle()
        await h.advance(minutes=10)
        await h.run_until_idle()
        await h.advance(minutes=5)

        assert await waits(h, 1) == [minutes(5)]


async def test_some_errors_are_given_up_on_at_once(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(give_up_on=(ValueError,)))
    async def parse(text: str) -> int:
        return int(text)

    h.schedule(parse, "parse", "not a number", FIVE_MINUTES)
    async with h:
        await h.run_until_idle()

        (letter,) = await h.letters()
        assert (letter.manifest, letter.status) == ("parse", "awaiting_intervention")
        assert letter.retry_count == 1
        assert letter.reason == (
            "failed once; it is not retried after "
            "ValueError: invalid literal for int() with base 10: 'not a number'"
        )
        assert h.queued() == []


async def test_a_manifest_gives_up_on_the_errors_of_its_policy(url: str) -> None:
    async with build_harness(url, retry=Retry(max_attempts=5, give_up_on=(LookupError,))) as h:
        await h.fails("sync")
        assert await h.manage() == ["sync"], "another error is tried again"

        await h.fails("sync", error=KeyError("users"))
        await h.manage()

        (letter,) = await h.letters()
        assert letter.reason == "failed 2 times in a row; it is not retried after KeyError: 'users'"
        assert (letter.retry_count, h.queued()) == (2, [])
        assert (await h.manifest("sync")).failure_count == 2


async def test_give_up_on_of_a_manifest_overrides_that_of_its_train(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(give_up_on=(ValueError,)))
    async def parse(text: str) -> int:
        return int(text)

    h.schedule(parse, "patient", "not a number", FIVE_MINUTES, retry=Retry(max_attempts=5))
    async with h:
        await h.run_until_idle()

        assert (await h.letters(), len(h.queued("patient"))) == ([], 1)


@pytest.mark.parametrize("resolve", ["requeue", "acknowledge"])
async def test_a_manifest_that_gave_up_is_retried_after_its_letter_is_resolved(
    url: str, resolve: str
) -> None:
    async with build_harness(url, retry=Retry(max_attempts=5, give_up_on=(LookupError,))) as h:
        await h.fails("sync", error=KeyError("users"))
        await h.manage()
        (letter,) = await h.letters()

        if resolve == "requeue":
            await h.app.dead_letters.requeue([letter.id])
        else:
            await h.app.dead_letters.acknowledge([letter.id], "seen")
        await h.fails("sync")

        assert await h.manage() == ["sync"]
        assert len(await h.letters()) == 1


async def test_a_success_clears_an_error_that_is_not_retried(url: str) -> None:
    async with build_harness(url, retry=Retry(max_attempts=5, give_up_on=(LookupError,))) as h:
        await h.fails("sync", error=KeyError("users"))
        await h.app.manifests.trigger("sync")

        await run_queued(h)
        await h.manage()

        assert await h.letters() == []


async def test_a_manifest_that_gave_up_while_disabled_gets_its_letter_when_enabled(url: str) -> None:
    async with build_harness(url, retry=Retry(give_up_on=(LookupError,))) as h:
        await h.fails("sync", error=KeyError("users"))
        await h.app.manifests.disable("sync")
        assert (await h.manage(), await h.letters()) == ([], [])

        await h.app.manifests.enable("sync")
        await h.manage()

        assert [letter.retry_count for letter in await h.letters()] == [1]


async def test_the_retry_policy_of_a_job_decides_when_it_gives_up(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(max_attempts=5, delay=minutes(0), give_up_on=(LookupError,)))
    async def find(word: str) -> None:
        raise KeyError(word)

    async with h:
        await h.app.queue(find, "users")
        await run_queued(h)

        (letter,) = await h.letters()
        assert letter.reason == "failed once; it is not retried after KeyError: 'users'"
        assert (letter.retry_count, h.queued()) == (1, [])


async def test_a_single_job_keeps_its_policy_through_its_dead_letter(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(max_attempts=2, delay=minutes(1)))
    async def fail(number: int) -> None:
        raise ValueError(number)

    async with h:
        await h.app.queue(fail, 7)
        await run_queued(h)
        await h.advance(minutes=1)
        await run_queued(h)
        (letter,) = await h.letters()

        await h.app.dead_letters.requeue([letter.id])
        await run_queued(h)

        assert h.entry().scheduled_at == h.now + minutes(1)
        await h.advance(minutes=1)
        await run_queued(h)
        assert [one.retry_count for one in await h.letters()] == [2, 2]


async def test_a_single_job_is_retried_with_jitter(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(delay=minutes(10), jitter=0.5))
    async def fail(number: int) -> None:
        raise ValueError(number)

    async with h:
        await h.app.queue_many(fail, list(range(20)))
        await run_queued(h)

        told = [(entry.scheduled_at or h.now) - h.now for entry in h.queued()]
        assert len(told) == 20
        assert all(minutes(10) <= each <= minutes(15) for each in told)
        assert len(set(told)) > 1, "each waits its own time"


async def test_other_errors_of_the_same_train_are_retried(url: str) -> None:
    h = ManagerHarness(url, TEN)

    @h.app.train(retry=Retry(give_up_on=(ValueError,)))
    async def parse(text: str) -> int:
        raise OSError(text)

    h.schedule(parse, "parse", "the disk is full", FIVE_MINUTES)
    async with h:
        await h.run_until_idle()

        assert (await h.letters(), len(h.queued("parse"))) == ([], 1)


async def test_an_input_that_became_invalid_gives_up_at_once(url: str) -> None:
    async with build_harness(url) as h:
        h.change_manifest("sync", input='{"no": "string"}')

        await h.run_until_idle()

        assert [letter.manifest for letter in await h.letters()] == ["sync"]
        (run,) = await h.app.executions.list(train="job")
        assert (run.state, run.failure_exception) == (State.FAILED, "InvalidInput")


async def test_a_once_manifest_is_retried_until_it_succeeds(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=minutes(0))
    async with h:
        await h.fails("migrate", 2)
        await h.manage()
        await h.advance(minutes=10)
        await run_queued(h)

        assert len(h.ran) == 3
        assert not (await h.manifest("migrate")).enabled


async def test_a_once_manifest_gives_up_after_its_retries(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=minutes(0))
    async with h:
        await h.dead_letter("migrate")
        await h.advance(days=1)
        await h.run_until_idle()

        assert len(h.ran) == 3


def by_hand(url: str, kind: Any = "on_demand", **how: Unpack[ScheduleKeywords]) -> ManagerHarness:
    """A manifest that only a person starts, and that fails."""
    made = ManagerHarness(url, TEN)
    made.schedule(made.job, "sync", "sync", kind, **how)
    made.errors["sync"] = RuntimeError("no luck")
    return made


@pytest.mark.parametrize("kind", ["on_demand", "none"])
async def test_a_failed_run_of_an_on_demand_manifest_is_retried_by_its_policy(url: str, kind: str) -> None:
    async with by_hand(url, kind, retry=Retry(max_attempts=3, delay=minutes(1))) as h:
        await h.run_until_idle()
        assert h.ran == [], "nobody has started it yet"

        await h.app.manifests.trigger("sync")
        await h.run_until_idle()
        retry = h.entry("sync")
        assert (retry.origin, retry.input, retry.scheduled_at) == (Origin.RETRY, "sync", h.now + minutes(1))
        await h.advance(minutes=1)
        await h.run_until_idle()
        assert h.entry("sync").scheduled_at == h.now + minutes(2)
        await h.advance(minutes=2)
        await h.run_until_idle()

        (letter,) = await h.letters()
        assert (letter.manifest, letter.retry_count, h.queued()) == ("sync", 3, [])
        assert [run.attempt for run in await h.app.executions.list(train="job")] == [3, 2, 1]


async def test_an_on_demand_manifest_rests_again_after_a_successful_retry(url: str) -> None:
    async with by_hand(url) as h:
        await h.app.manifests.trigger("sync")
        await h.run_until_idle()
        h.errors.clear()

        await h.advance(days=1)
        await h.run_until_idle()
        await h.advance(days=1)
        await h.run_until_idle()

        assert (len(h.ran), h.queued()) == (2, [])
        assert (await h.manifest("sync")).failure_count == 0


async def test_a_retry_of_an_on_demand_manifest_can_be_withdrawn(url: str) -> None:
    async with by_hand(url) as h:
        await h.app.manifests.trigger("sync")
        await h.run_until_idle()

        await h.app.work_queue.cancel([h.entry("sync").id])
        await h.advance(days=1)
        await h.run_until_idle()

        assert (len(h.ran), h.queued(), await h.letters()) == (1, [], [])


async def test_a_dead_letter_of_an_on_demand_manifest_is_requeued_or_acknowledged(url: str) -> None:
    async with by_hand(url, max_retries=1) as h:
        await h.app.manifests.trigger("sync")
        await h.run_until_idle()
        (first,) = await h.letters()
        await h.app.dead_letters.requeue([first.id])
        await h.run_until_idle()
        assert len(h.ran) == 2
        second = (await h.letters())[-1]

        await h.app.dead_letters.acknowledge([second.id], "seen")
        await h.run_until_idle()

        assert (len(h.ran), len(await h.letters())) == (2, 2)


async def test_a_retry_waits_for_the_end_of_an_exclusion(url: str) -> None:
    h = ManagerHarness(url, at(21, 58))
    h.schedule(h.job, "sync", "sync", OFTEN, exclude=exclude.time_window("22:00", "06:00"))

    async def take_long() -> None:
        await h.advance(minutes=3)

    h.during["sync"] = take_long
    async with h:
        await h.fails("sync")

        assert await h.manage() == []
        assert (await h.manifest("sync")).next_due_at == at(6) + timedelta(days=1)


@pytest.mark.parametrize("error", [RuntimeError("no luck"), RetryAfter(minutes(3))])
async def test_a_retry_that_would_begin_in_an_exclusion_begins_after_it(url: str, error: Exception) -> None:
    h = ManagerHarness(url, at(21, 58))
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, exclude=exclude.time_window("22:00", "06:00"))
    async with h:
        await h.fails("sync", error=error)

        assert await h.manage() == ["sync"]

        assert h.entry("sync").scheduled_at == at(6) + timedelta(days=1)
        await h.advance(hours=8, minutes=1)
        await h.run_until_idle()
        assert len(h.ran) == 1
        await h.advance(minutes=1)
        await h.run_until_idle()
        assert len(h.ran) == 2


async def test_a_manifest_disabled_after_a_failure_is_retried_once_it_is_enabled(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync")
        await h.app.manifests.disable("sync")
        assert await h.manage() == []

        await h.app.manifests.enable("sync")

        assert await h.manage() == ["sync"]
        assert h.entry().origin is Origin.RETRY


async def test_a_run_that_was_failed_meanwhile_is_not_counted_twice(url: str) -> None:
    async with build_harness(url) as h:

        async def be_thought_lost() -> None:
            await h.advance(seconds=21)
            managed = await h.store.call(run_manager_cycle, h.store, h.app.context.settings, ManagerInput())
            assert managed
            assert len(managed.reaped) == 1

        h.during["sync"] = be_thought_lost
        h.errors["sync"] = RuntimeError("too late")
        await h.manage()
        await run_queued(h)

        assert (await h.manifest("sync")).failure_count == 1
        (run,) = await h.app.executions.list(train="job")
        assert run.failure_exception == "WorkerLost"


# cancelled


async def test_a_cancelled_run_is_no_failure_and_the_next_is_at_the_next_occurrence(url: str) -> None:
    async with build_harness(url, max_retries=1) as h:

        async def take_two_minutes() -> None:
            await h.advance(minutes=2)

        h.during["sync"] = take_two_minutes
        h.errors["sync"] = Cancel("stopped")
        await h.manage()
        await run_queued(h)

        manifest = await h.manifest("sync")
        assert (manifest.failure_count, manifest.next_due_at) == (0, at(10, 7))
        assert (await h.manage(), await h.letters()) == ([], [])
        h.now = at(10, 7)
        assert await h.manage() == ["sync"]
        assert h.entry().scheduled_at is None


async def test_a_cancelled_cron_run_waits_for_the_next_moment_of_the_clock(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "hourly", "hourly", cron("30 * * * *"), start="now")
    h.errors["hourly"] = Cancel("stopped")
    async with h:
        await h.run_until_idle()

        assert len(h.ran) == 1
        assert (await h.manifest("hourly")).next_due_at == at(10, 30)


async def test_a_run_that_timed_out_does_not_start_again_at_once(url: str) -> None:
    async with build_harness(url, timeout=minutes(1), max_retries=1) as h:

        async def overstay() -> None:
            await h.advance(minutes=1, seconds=1)
            assert len((await h.cycle("manifest_manager")).timed_out) == 1

        h.during["sync"] = overstay
        h.errors["sync"] = Cancel("it was asked to stop")
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="job")
        assert (run.state, run.cancel_requested) == (State.CANCELLED, True)
        assert (await h.letters(), h.queued()) == ([], [])
        assert (await h.manifest("sync")).next_due_at == h.now + minutes(5)


def overstaying(url: str, *, counts: bool, max_retries: int = 1) -> ManagerHarness:
    """A job that is stopped each time because it takes longer than it may."""
    h = ManagerHarness(url, TEN, **({} if counts else {"timeout_counts_as_failure": False}))
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, timeout=minutes(1), max_retries=max_retries)

    async def overstay() -> None:
        await h.advance(minutes=1, seconds=1)
        await h.cycle("manifest_manager")  # it is asked to stop
        await h.cycle("manifest_manager")  # its worker hears of it
        await asyncio.Event().wait()

    h.during["sync"] = h.during["alone"] = overstay
    return h


async def test_a_run_past_its_time_limit_has_failed(url: str) -> None:
    async with overstaying(url, counts=True) as h:
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="job")
        assert (run.state, run.failure_exception) == (State.FAILED, "RunTimedOut")
        assert "timed out" in str(run.failure_reason)
        (letter,) = await h.letters()
        assert (letter.manifest, letter.retry_count) == ("sync", 1)


async def test_a_dead_letter_names_the_final_timeout_and_no_older_failure(url: str) -> None:
    async with overstaying(url, counts=True, max_retries=2) as h:
        overstay = h.during.pop("sync")
        await h.fails("sync")
        h.during["sync"] = overstay
        await h.cycle("manifest_manager")
        await h.advance(minutes=5)

        await h.run_until_idle()

        timed_out, failed = await h.app.executions.list(train="job")
        (letter,) = await h.letters()
        assert (failed.state, timed_out.state) == (State.FAILED, State.FAILED)
        assert (letter.last_metadata_id, letter.failure_reason) == (timed_out.id, timed_out.failure_reason)
        assert "timed out" in str(letter.failure_reason)


async def test_a_letter_does_not_blame_a_run_that_was_cancelled_after_the_failure(url: str) -> None:
    async with overstaying(url, counts=False, max_retries=1) as h:
        h.during.clear()
        await h.fails("sync")
        h.insert_run("sync", state="cancelled", ended_at=h.now, cancel_reason="timeout")

        await h.manage()

        (failed,) = await h.app.executions.list(state="failed")
        (letter,) = await h.letters()
        assert letter.last_metadata_id == failed.id


@pytest.mark.parametrize("gives_up_on", [TimeoutError, RunTimedOut])
async def test_a_policy_may_give_up_on_timeouts(url: str, gives_up_on: type[Exception]) -> None:
    h = overstaying(url, counts=True)
    retry = Retry(max_attempts=5, give_up_on=(gives_up_on,))
    run_long = h.app.train("run_long", junction(h.told), timeout=minutes(1), retry=retry)
    async with h:
        await h.app.manifests.disable("sync")
        await h.app.queue(run_long, "alone")
        await run_queued(h)

        assert (len(await h.letters()), h.queued()) == (1, [])


async def test_a_timeout_is_followed_by_a_retry(url: str) -> None:
    async with overstaying(url, counts=True, max_retries=2) as h:
        await h.run_until_idle()

        entry = h.entry("sync")
        assert (entry.origin, entry.scheduled_at) == (Origin.RETRY, h.now + minutes(5))


async def test_a_timeout_is_no_failure_if_the_setting_is_off(url: str) -> None:
    async with overstaying(url, counts=False) as h:
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="job")
        assert run.state is State.CANCELLED
        assert "timed out" in str(run.failure_reason)
        assert (await h.letters(), h.queued()) == ([], [])
        assert (await h.manifest("sync")).next_due_at == h.now + minutes(5)


@pytest.mark.parametrize(
    ("counts", "state", "letters"), [(True, State.FAILED, 1), (False, State.CANCELLED, 0)]
)
async def test_a_single_job_that_timed_out_follows_the_same_setting(
    url: str, counts: bool, state: State, letters: int
) -> None:
    h = overstaying(url, counts=counts)
    run_long = h.app.train("run_long", junction(h.told), timeout=minutes(1), max_retries=1)
    async with h:
        await h.app.manifests.disable("sync")
        await h.app.queue(run_long, "alone")
        await run_queued(h)

        (run,) = await h.app.executions.list(train="run_long")
        assert run.state is state
        assert (len(await h.letters()), h.queued()) == (letters, [])


async def test_a_cancellation_by_an_operator_is_no_failure_under_any_setting(url: str) -> None:
    h = ManagerHarness(url, TEN, timeout_counts_as_failure=True)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=1)

    async def be_cancelled() -> None:
        await h.app.manifests.cancel("sync")
        await h.cycle("manifest_manager")
        await asyncio.Event().wait()

    h.during["sync"] = be_cancelled
    async with h:
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="job")
        assert run.state is State.CANCELLED
        assert await h.letters() == []


async def test_a_cancelled_once_manifest_stays_disabled(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=minutes(0))
    h.errors["migrate"] = Cancel("stopped")
    async with h:
        await h.run_until_idle()
        await h.advance(days=1)
        await h.seed()
        await h.run_until_idle()

        assert len(h.ran) == 1
        assert (await h.manifest("migrate")).next_due_at is None


async def test_a_cancelled_retry_leaves_the_count_of_failures_unchanged(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync")
        await h.fails("sync", error=Cancel("stopped"))

        assert (await h.manifest("sync")).failure_count == 1
        assert (await h.manifest("sync")).next_due_at == h.now + minutes(5)


async def test_a_cancelled_retry_is_followed_by_the_next_regular_run(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync")
        await h.fails("sync", error=Cancel("stopped"))

        await h.advance(minutes=5)

        assert await h.manage() == ["sync"]
        entry = h.entry()
        assert (entry.origin, entry.scheduled_at) == (Origin.SCHEDULE, None)
