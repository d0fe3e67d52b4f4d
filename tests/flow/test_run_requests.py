"""Exceptions by which a run requests a later retry, another run later, or its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select
from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Cancel, Retry, RetryAfter, Snooze, current, every
from trax.records import Origin, State
from trax.store.schema import tables

if TYPE_CHECKING:
    from trax import Metadata, WorkQueueEntry
    from trax.store import Connection

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
TWO_MINUTES = timedelta(minutes=2)


def build_harness(url: str, **how: Any) -> ManagerHarness:
    made = ManagerHarness(url, TEN)
    made.schedule(made.job, "sync", "sync", FIVE_MINUTES, **how)
    return made


async def runs(h: ManagerHarness) -> list[Metadata]:
    """The runs of `job`, oldest first."""
    return (await h.app.executions.list(train="job"))[::-1]


async def alone(h: ManagerHarness, error: Exception) -> WorkQueueEntry:
    """A job without a manifest that runs and raises this."""
    h.errors["alone"] = error
    entry = await h.app.queue(h.job, "alone")
    assert await run_queued(h) == 1
    return entry


# try again then


async def test_a_manifest_is_retried_at_the_time_its_run_requested(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync", error=RetryAfter(TWO_MINUTES, "the quota is used up"))

        assert await h.manage() == ["sync"]
        entry = h.entry()
        assert (entry.origin, entry.scheduled_at) == (Origin.RETRY, TEN + TWO_MINUTES)
        (run,) = await runs(h)
        assert (run.state, run.failure_exception) == (State.FAILED, "RetryAfter")
        assert run.failure_reason == "the quota is used up"


async def test_a_requested_retry_delay_counts_from_the_end_of_the_run(url: str) -> None:
    async with build_harness(url) as h:
        await h.fails("sync", error=RetryAfter(TWO_MINUTES))
        await h.advance(minutes=1)

        await h.manage()

        assert h.entry().scheduled_at == TEN + TWO_MINUTES


async def test_a_requested_retry_counts_as_a_failure(url: str) -> None:
    async with build_harness(url, max_retries=2) as h:
        await h.fails("sync", 2, error=RetryAfter(TWO_MINUTES))
        await h.manage()

        (letter,) = await h.letters()
        assert (letter.retry_count, h.queued()) == (2, [])


async def test_the_failure_after_a_requested_retry_waits_by_the_policy(url: str) -> None:
    async with build_harness(url, max_retries=9) as h:
        await h.fails("sync", error=RetryAfter(TWO_MINUTES))
        await h.fails("sync")
        await h.manage()

        assert h.entry().scheduled_at == h.now + timedelta(minutes=10)


async def test_a_single_job_is_retried_at_the_time_it_requested(url: str) -> None:
    async with ManagerHarness(url, TEN) as h:
        entry = await alone(h, RetryAfter(TWO_MINUTES))

        (waiting,) = h.queued()
        assert (waiting.id, waiting.scheduled_at) == (entry.id, TEN + TWO_MINUTES)
        h.errors.clear()
        await h.advance(minutes=2)
        assert await run_queued(h) == 1
        assert [(run.state, run.attempt) for run in await runs(h)] == [
            (State.FAILED, 1),
            (State.COMPLETED, 2),
        ]


async def test_a_single_job_that_exceeds_its_requested_retries_becomes_a_dead_letter(url: str) -> None:
    async with ManagerHarness(url, TEN, default_max_retries=1) as h:
        await alone(h, RetryAfter(TWO_MINUTES, "the quota is used up"))

        (letter,) = await h.letters()
        assert letter.reason == (
            "failed once, the last time with RetryAfter: the quota is used up; max_retries is 1"
        )
        assert h.queued() == []


async def test_giving_up_overrides_a_requested_retry(url: str) -> None:
    async with build_harness(url, retry=Retry(give_up_on=(RetryAfter,))) as h:
        await h.fails("sync", error=RetryAfter(TWO_MINUTES))
        await h.manage()

        assert [letter.retry_count for letter in await h.letters()] == [1]


# later


async def test_a_snoozed_manifest_runs_again_for_the_same_occurrence_uncounted(url: str) -> None:
    occurrences: list[tuple[datetime | None, int]] = []

    async def note() -> None:
        run = current()
        assert run is not None
        occurrences.append((run.scheduled_for, run.attempt))

    async with build_harness(url, max_retries=1) as h:
        h.during["sync"] = note
        h.errors["sync"] = Snooze(TWO_MINUTES, "the file is not there yet")
        await h.run_until_idle()
        assert h.entry().scheduled_at == TEN + TWO_MINUTES

        await h.advance(minutes=1, seconds=59)
        await h.run_until_idle()
        assert len(h.ran) == 1
        h.errors.clear()
        await h.advance(seconds=1)
        await h.run_until_idle()

        assert occurrences == [(TEN, 1), (TEN, 1)]
        assert [run.state for run in await runs(h)] == [State.CANCELLED, State.COMPLETED]
        manifest = await h.manifest("sync")
        assert (manifest.failure_count, manifest.next_due_at) == (0, h.now + timedelta(minutes=5))
        assert await h.letters() == []


async def test_the_record_of_a_snoozed_run_shows_when_it_runs_again(url: str) -> None:
    async with build_harness(url) as h:
        h.errors["sync"] = Snooze(TWO_MINUTES, "the file is not there yet")
        await h.run_until_idle()

        (run,) = await runs(h)
        assert (run.state, run.failure_exception) == (State.CANCELLED, "Snooze")
        assert run.failure_reason == "the file is not there yet; it runs again at 2027-03-01 10:02:00 UTC"


async def test_a_snoozed_single_job_is_requeued_uncounted(url: str) -> None:
    async with ManagerHarness(url, TEN, default_max_retries=1) as h:
        entry = await alone(h, Snooze(TWO_MINUTES))

        (waiting,) = h.queued()
        assert (waiting.id, waiting.scheduled_at) == (entry.id, TEN + TWO_MINUTES)
        await h.advance(minutes=2)
        assert await run_queued(h) == 1
        assert [run.attempt for run in await runs(h)] == [1, 1]
        assert await h.letters() == []


async def test_snoozing_between_failures_keeps_their_count(url: str) -> None:
    async with build_harness(url, max_retries=3) as h:
        await h.fails("sync")
        await h.fails("sync", error=Snooze(TWO_MINUTES))
        assert (await h.manifest("sync")).failure_count == 1

        await h.fails("sync")

        assert (await h.manifest("sync")).failure_count == 2
        assert [run.attempt for run in await runs(h)] == [1, 2, 2]


async def test_a_run_can_be_snoozed_although_the_next_one_is_queued(url: str) -> None:
    async with build_harness(url, max_instances=2) as h:

        async def outlast_the_interval() -> None:
            await h.advance(minutes=5)
            assert await h.manage() == ["sync"]

        h.during["sync"] = outlast_the_interval
        h.errors["sync"] = Snooze(TWO_MINUTES)
        await h.manage()
        await h.cycle("job_dispatcher")
        assert await h.work() == 1

        put_off, following = h.queued()
        assert (following.origin, following.scheduled_at) == (Origin.SCHEDULE, None)
        assert (put_off.origin, put_off.scheduled_at) == (Origin.REQUEUE, h.now + TWO_MINUTES)


# no more


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_run_that_cancels_itself_ends_cancelled_with_its_reason(url: str, is_alone: bool) -> None:
    async with build_harness(url, max_retries=1, enabled=not is_alone) as h:
        if is_alone:
            await alone(h, Cancel("nothing to do"))
        else:
            await h.fails("sync", error=Cancel("nothing to do"))

        (run,) = await runs(h)
        assert (run.state, run.failure_exception) == (State.CANCELLED, "Cancelled")
        assert run.failure_reason == "nothing to do"
        assert (h.queued(), await h.letters()) == ([], [])


# in any kind of train, and outside the queue


async def test_a_synchronous_train_can_make_the_same_requests(url: str) -> None:
    h = ManagerHarness(url, TEN)
    wishes: dict[str, Exception] = {
        "retry": RetryAfter(TWO_MINUTES),
        "snooze": Snooze(TWO_MINUTES),
        "cancel": Cancel("nothing to do"),
    }

    @h.app.train
    def ask(wish: str) -> None:
        raise wishes[wish]

    async with h:
        await h.app.queue_many(ask, ["retry", "snooze", "cancel"])
        await run_queued(h)

        ended = {run.input: run.state for run in await h.app.executions.list(train="ask")}
        assert ended == {"retry": State.FAILED, "snooze": State.CANCELLED, "cancel": State.CANCELLED}
        waiting = {entry.input: entry.scheduled_at for entry in h.queued()}
        assert waiting == {"retry": TEN + TWO_MINUTES, "snooze": TEN + TWO_MINUTES}


@pytest.mark.parametrize(
    ("wish", "state"),
    [
        (RetryAfter(TWO_MINUTES), State.FAILED),
        (Snooze(TWO_MINUTES), State.CANCELLED),
        (Cancel("nothing to do"), State.CANCELLED),
    ],
)
async def test_requests_of_a_direct_run_are_raised_in_the_caller(
    url: str, wish: Exception, state: State
) -> None:
    async with ManagerHarness(url, TEN) as h:
        h.errors["here"] = wish

        with pytest.raises(type(wish)) as raised:
            await h.app.run(h.job, "here")

        assert raised.value is wish
        (run,) = await runs(h)
        assert (run.state, run.failure_reason) == (state, str(wish))
        assert h.queued() == []


@pytest.mark.parametrize(
    "error", [Snooze(TWO_MINUTES), RuntimeError("no luck")], ids=["put off", "tried again"]
)
async def test_a_requeued_entry_has_the_current_priority_of_its_group(url: str, error: Exception) -> None:
    async with ManagerHarness(url, TEN) as h:
        await h.app.queue(h.job, "sync", group="mail")

        async def meanwhile() -> None:
            await h.app.groups.update("mail", priority=20)

        h.during["sync"], h.errors["sync"] = meanwhile, error
        await run_queued(h)

        assert h.store.read(group_priorities) == [20]


def group_priorities(connection: Connection) -> list[int]:
    queue = tables(connection).work_queue
    return list(
        connection.execute(select(queue.c.group_priority).where(queue.c.status == "queued")).scalars()
    )
