"""Withdrawing the entry of a manifest, or cancelling its run before it begins: the schedule goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.flow_manager import Yard
from tests.support.running import run_queued

from trax import Retry, Snooze, cron, every
from trax.records import Origin, State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
async def yard(url: str) -> AsyncGenerator[Yard]:
    made = Yard(url, TEN)
    made.schedule(made.job, "hourly", "hourly", every(hours=1), retry=Retry(max_attempts=3))
    async with made:
        yield made


async def withdraw(yard: Yard, manifest: str) -> int:
    """How many were withdrawn."""
    withdrawn = await yard.app.work_queue.cancel([entry.id for entry in yard.queued(manifest)])
    return len(withdrawn)


async def test_a_schedule_goes_on_at_its_next_occurrence(yard: Yard) -> None:
    await yard.app.manifests.schedule(yard.job, "daily", "daily", cron("0 7 * * *"), start="now")
    await yard.manage()

    withdrawn = await withdraw(yard, "hourly") + await withdraw(yard, "daily")

    assert withdrawn == 2
    assert (await yard.manifest("hourly")).next_due_at == TEN + timedelta(hours=1)
    assert (await yard.manifest("daily")).next_due_at == datetime(2027, 3, 2, 7, tzinfo=UTC)

    await yard.advance(hours=1)
    assert await yard.manage() == ["hourly"]


async def test_what_was_to_run_once_stays_withdrawn(yard: Yard) -> None:
    await yard.app.manifests.schedule_once(yard.job, "once", "once")
    await yard.manage()

    await withdraw(yard, "once")
    await yard.advance(days=1)
    await yard.run_until_idle()

    assert "once" not in yard.ran
    assert not (await yard.manifest("once")).enabled


async def test_a_withdrawn_retry_leaves_the_schedule_running(yard: Yard) -> None:
    await yard.fails("hourly")
    await yard.manage()
    (retry,) = yard.queued("hourly")

    await withdraw(yard, "hourly")

    assert retry.origin is Origin.RETRY
    assert (await yard.manifest("hourly")).next_due_at == yard.now + timedelta(hours=1)
    await yard.advance(hours=1)
    assert "hourly" in await yard.manage()


async def test_a_withdrawn_requeue_lets_the_schedule_go_on(yard: Yard) -> None:
    letter = await yard.dead_letter("hourly")
    await yard.app.dead_letters.requeue([letter.id])
    await yard.cycle("manifest_manager")

    await withdraw(yard, "hourly")

    manifest = await yard.manifest("hourly")
    assert (manifest.failure_count, manifest.next_due_at) == (0, yard.now + timedelta(hours=1))


async def test_withdrawing_an_extra_run_changes_nothing_for_the_schedule(yard: Yard) -> None:
    await yard.run_until_idle()
    before = await yard.manifest("hourly")
    entry = await yard.app.manifests.trigger("hourly")

    await yard.app.work_queue.cancel([entry.id])

    assert await yard.manifest("hourly") == before


async def test_a_run_that_nobody_has_begun_is_cancelled_at_once(yard: Yard) -> None:
    await yard.manage()
    runs = (await yard.cycle("job_dispatcher")).metadata_ids

    cancelled = await yard.app.executions.cancel(runs)
    again = await yard.app.executions.cancel(runs)
    await yard.run_until_idle()

    states = {run.state for run in await yard.app.executions.list()}
    assert (sorted(cancelled), again, states) == (sorted(runs), [], {State.CANCELLED})
    assert yard.ran == []
    assert (await yard.manifest("hourly")).next_due_at == TEN + timedelta(hours=1)
    assert await yard.letters() == []


async def test_a_dependent_whose_entry_is_withdrawn_waits_for_the_next_success(yard: Yard) -> None:
    await yard.app.manifests.schedule_dependent(yard.job, "after", "after", "hourly")
    await yard.manage()
    await yard.cycle("job_dispatcher")
    await yard.work()
    await yard.manage()
    waiting = len(yard.queued("after"))

    await withdraw(yard, "after")
    await yard.run_until_idle()
    ran_without_a_success = "after" in yard.ran
    await yard.advance(hours=1)
    await yard.run_until_idle()

    assert (waiting, ran_without_a_success) == (1, False)
    assert "after" in yard.ran


@pytest.mark.parametrize("withdraws", [False, True])
async def test_an_extra_run_that_is_put_off_does_not_put_off_the_schedule(
    yard: Yard, withdraws: bool
) -> None:
    """The manager looks while the extra run is active, and leaves the schedule until the end of it."""
    await yard.run_until_idle()
    await yard.app.manifests.trigger("hourly")

    async def meanwhile() -> None:
        await yard.advance(hours=1)
        assert await yard.manage() == []

    yard.during["hourly"], yard.errors["hourly"] = meanwhile, Snooze(timedelta(hours=3))
    await run_queued(yard)
    yard.during.clear()
    yard.errors.clear()
    (put_off,) = yard.queued("hourly")
    if withdraws:
        await withdraw(yard, "hourly")

    queued = await yard.manage()

    assert (put_off.origin, queued) == (Origin.TRIGGER, ["hourly"])


async def test_a_scheduled_run_that_is_put_off_is_waited_for(yard: Yard) -> None:
    yard.errors["hourly"] = Snooze(timedelta(hours=3))
    await yard.run_until_idle()
    yard.errors.clear()
    await yard.advance(hours=2)

    assert await yard.manage() == []
    await withdraw(yard, "hourly")
    assert (await yard.manifest("hourly")).next_due_at == yard.now + timedelta(hours=1)


async def test_cancelling_an_extra_run_before_it_begins_lets_the_schedule_go_on(yard: Yard) -> None:
    await yard.run_until_idle()
    await yard.app.manifests.trigger("hourly")
    runs = (await yard.cycle("job_dispatcher")).metadata_ids
    await yard.advance(hours=1)
    assert await yard.manage() == []

    await yard.app.executions.cancel(runs)

    assert (await yard.manifest("hourly")).next_due_at == yard.now + timedelta(hours=1)
