"""Withdrawing the entry of a manifest, or cancelling its run before it begins: the schedule goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Retry, Snooze, cron, every
from trax.records import Origin, State

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
async def harness(url: str) -> AsyncGenerator[ManagerHarness]:
    made = ManagerHarness(url, TEN)
    made.schedule(made.job, "hourly", "hourly", every(hours=1), retry=Retry(max_retries=3))
    async with made:
        yield made


async def withdraw(harness: ManagerHarness, manifest: str) -> int:
    return await harness.app.work_queue.cancel([entry.id for entry in harness.queued(manifest)])


async def test_a_schedule_continues_at_its_next_occurrence(harness: ManagerHarness) -> None:
    await harness.app.manifests.schedule(harness.job, "daily", "daily", cron("0 7 * * *"), start="now")
    await harness.manage()

    withdrawn = await withdraw(harness, "hourly") + await withdraw(harness, "daily")

    assert withdrawn == 2
    assert (await harness.manifest("hourly")).next_due_at == TEN + timedelta(hours=1)
    assert (await harness.manifest("daily")).next_due_at == datetime(2027, 3, 2, 7, tzinfo=UTC)

    await harness.advance(hours=1)
    assert await harness.manage() == ["hourly"]


async def test_a_withdrawn_once_manifest_does_not_run(harness: ManagerHarness) -> None:
    await harness.app.manifests.schedule_once(harness.job, "once", "once")
    await harness.manage()

    await withdraw(harness, "once")
    await harness.advance(days=1)
    await harness.run_until_idle()

    assert "once" not in harness.ran
    assert not (await harness.manifest("once")).enabled


async def test_a_withdrawn_retry_leaves_the_schedule_running(harness: ManagerHarness) -> None:
    await harness.fails("hourly")
    await harness.manage()
    (retry,) = harness.queued("hourly")

    await withdraw(harness, "hourly")

    assert retry.origin is Origin.RETRY
    assert (await harness.manifest("hourly")).next_due_at == harness.now + timedelta(hours=1)
    await harness.advance(hours=1)
    assert "hourly" in await harness.manage()


async def test_a_withdrawn_requeue_does_not_stop_the_schedule(harness: ManagerHarness) -> None:
    letter = await harness.dead_letter("hourly")
    await harness.app.dead_letters.requeue([letter.id])
    await harness.cycle("manifest_manager")

    await withdraw(harness, "hourly")

    manifest = await harness.manifest("hourly")
    assert (manifest.failure_count, manifest.next_due_at) == (0, harness.now + timedelta(hours=1))


async def test_withdrawing_an_extra_run_changes_nothing_for_the_schedule(harness: ManagerHarness) -> None:
    await harness.run_until_idle()
    before = await harness.manifest("hourly")
    entry = await harness.app.manifests.trigger("hourly")

    await harness.app.work_queue.cancel([entry.id])

    assert await harness.manifest("hourly") == before


async def test_a_run_that_has_not_started_is_cancelled_at_once(harness: ManagerHarness) -> None:
    await harness.manage()
    runs = (await harness.cycle("job_dispatcher")).metadata_ids

    cancelled = await harness.app.executions.cancel(runs)
    again = await harness.app.executions.cancel(runs)
    await harness.run_until_idle()

    states = {run.state for run in await harness.app.executions.list()}
    assert (sorted(cancelled), again, states) == (sorted(runs), [], {State.CANCELLED})
    assert harness.ran == []
    assert (await harness.manifest("hourly")).next_due_at == TEN + timedelta(hours=1)
    assert await harness.letters() == []


async def test_a_dependent_whose_entry_is_withdrawn_waits_for_the_next_success(
    harness: ManagerHarness,
) -> None:
    await harness.app.manifests.schedule_dependent(harness.job, "after", "after", "hourly")
    await harness.manage()
    await harness.cycle("job_dispatcher")
    await harness.work()
    await harness.manage()
    waiting = len(harness.queued("after"))

    await withdraw(harness, "after")
    await harness.run_until_idle()
    ran_without_a_success = "after" in harness.ran
    await harness.advance(hours=1)
    await harness.run_until_idle()

    assert (waiting, ran_without_a_success) == (1, False)
    assert "after" in harness.ran


@pytest.mark.parametrize("withdraws", [False, True])
async def test_a_snoozed_extra_run_does_not_delay_the_schedule(
    harness: ManagerHarness, withdraws: bool
) -> None:
    """The manager looks while the extra run is active, and leaves the schedule until the end of it."""
    await harness.run_until_idle()
    await harness.app.manifests.trigger("hourly")

    async def meanwhile() -> None:
        await harness.advance(hours=1)
        assert await harness.manage() == []

    harness.during["hourly"], harness.errors["hourly"] = meanwhile, Snooze(timedelta(hours=3))
    await run_queued(harness)
    harness.during.clear()
    harness.errors.clear()
    (put_off,) = harness.queued("hourly")
    if withdraws:
        await withdraw(harness, "hourly")

    queued = await harness.manage()

    assert (put_off.origin, queued) == (Origin.TRIGGER, ["hourly"])


async def test_a_snoozed_scheduled_run_is_waited_for(harness: ManagerHarness) -> None:
    harness.errors["hourly"] = Snooze(timedelta(hours=3))
    await harness.run_until_idle()
    harness.errors.clear()
    await harness.advance(hours=2)

    assert await harness.manage() == []
    await withdraw(harness, "hourly")
    assert (await harness.manifest("hourly")).next_due_at == harness.now + timedelta(hours=1)


async def test_cancelling_an_extra_run_before_it_starts_does_not_stop_the_schedule(
    harness: ManagerHarness,
) -> None:
    await harness.run_until_idle()
    await harness.app.manifests.trigger("hourly")
    runs = (await harness.cycle("job_dispatcher")).metadata_ids
    await harness.advance(hours=1)
    assert await harness.manage() == []

    await harness.app.executions.cancel(runs)

    assert (await harness.manifest("hourly")).next_due_at == harness.now + timedelta(hours=1)
