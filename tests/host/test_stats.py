"""`app.stats`: numbers that are right while nothing is added up, while it is, and afterwards."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select
from tests.support.waiting import until

from trax import Cancel, NotFound, Trax, every, junction
from trax.records.listing import Count
from trax.records.stats import Point
from trax.server.loops import NO_SCHEDULER_AFTER, update_totals
from trax.store import stats
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


class StatsHarness(Harness):
    """A railway whose runs take as long as they are told to, and end as they are told to."""

    async def runs(
        self, *, completed: int = 0, failed: int = 0, cancelled: int = 0, seconds: int = 0
    ) -> None:
        for way, count in (("complete", completed), ("fail", failed), ("cancel", cancelled)):
            await self.app.queue_many("job", [(way, seconds)] * count, max_retries=1, group="etl")
        await self.app.settings.update(max_active_jobs=None, max_queued_jobs_per_cycle=None)
        await self.run_until_idle()


@pytest.fixture
async def h(url: str) -> AsyncGenerator[StatsHarness]:
    app = Trax(url)
    harness = StatsHarness(app, now=NOON)

    @app.train
    async def job(told: tuple[str, int]) -> None:
        way, seconds = told
        await harness.advance(seconds=seconds)
        if way == "fail":
            raise ValueError(way)
        if way == "cancel":
            raise Cancel("not today")

    async with harness:
        yield harness


async def test_an_empty_railway_has_no_success_rate(h: StatsHarness) -> None:
    home = await h.app.stats.home()

    assert (home.executions_today, home.success_rate, home.running.number) == (0, None, 0)
    assert (home.completed_per_minute, home.failed_per_minute, home.exact) == (0, 0, True)
    assert home.registered_trains == 1


async def test_cancelled_runs_do_not_change_the_success_rate(h: StatsHarness) -> None:
    await h.runs(completed=8, failed=2, cancelled=5)

    home = await h.app.stats.home()

    assert home.success_rate == 0.8
    assert home.executions_today == 15
    assert (home.completed_per_minute, home.failed_per_minute) == (8 / 5, 2 / 5)
    assert home.dead_letters.number == 2


async def test_the_numbers_are_the_same_before_and_after_they_are_added_up(h: StatsHarness) -> None:
    for hours in range(4):
        await h.runs(completed=3, failed=1, cancelled=hours % 2, seconds=20)
        await h.advance(hours=1, minutes=7)
    before = await asked(h)

    await h.cycle("totals")

    assert await asked(h) == before
    assert (await h.app.stats.home()).executions_today == 18


async def asked(h: StatsHarness) -> list[object]:
    stats = h.app.stats
    return [
        await stats.home(),
        await stats.throughput("minute"),
        await stats.throughput("hour"),
        await stats.durations(),
        await stats.top_failures(),
        await stats.blocks(),
        await stats.states(),
        await stats.groups(),
    ]


async def test_a_run_that_ends_during_aggregation_counts_once(h: StatsHarness) -> None:
    await h.runs(completed=3)
    await h.advance(minutes=2, seconds=30)
    await h.runs(completed=2)
    await h.cycle("totals")  # the first three; the minute of the other two is not over
    await h.runs(completed=1)

    assert (await h.app.stats.home()).executions_today == 6
    (hour,) = [one for one in (await h.app.stats.throughput("hour")).points if one.completed]
    assert (hour.at, hour.completed) == (NOON, 6)


async def test_throughput_has_no_gaps(h: StatsHarness) -> None:
    await h.runs(completed=2, failed=1)
    await h.advance(minutes=10)
    await h.runs(cancelled=1)

    points = (await h.app.stats.throughput("minute")).points

    assert [one.at for one in points] == [h.now - timedelta(minutes=back) for back in range(59, -1, -1)]
    some = [(one.at, one.completed, one.failed, one.cancelled) for one in points if one != Point(one.at)]
    assert some == [(NOON, 2, 1, 0), (h.now, 0, 0, 1)]
    assert len((await h.app.stats.throughput("hour")).points) == 24


async def test_durations_are_those_of_completed_runs(h: StatsHarness) -> None:
    for seconds in range(1, 21):
        await h.runs(completed=1, seconds=seconds)
    await h.runs(failed=1, seconds=1000)

    (job,) = await h.app.stats.durations()

    assert (job.train, job.runs, job.sampled_runs, job.exact) == ("job", 20, 20, True)
    assert job.average.total_seconds() == pytest.approx(10.5, abs=0.001)
    assert job.p95 is not None
    assert job.p95.total_seconds() == pytest.approx(19, abs=0.001)


async def test_failing_trains_report_their_failure_rate(h: StatsHarness) -> None:
    await h.runs(completed=1, failed=3)

    (job,) = await h.app.stats.top_failures()

    assert (job.train, job.failed, job.completed, job.failure_rate) == ("job", 3, 1, 0.75)


async def test_seven_days_are_shown_in_blocks_with_the_rest_together(url: str) -> None:
    app = Trax(url, max_active_jobs=None)

    @junction
    async def run(_: int) -> None: ...

    for name in "abcde":
        app.train(name, run)
    async with Harness(app, now=NOON - timedelta(days=3)) as h:
        for name, times in {"a": 4, "b": 3, "c": 2, "d": 1, "e": 1}.items():
            await app.queue_many(name, list(range(times)))
        await h.run_until_idle()
        await h.advance(days=3)
        await app.queue("e", 1)
        await h.run_until_idle()

        blocks = await app.stats.blocks()

    assert (len(blocks.starts), blocks.starts[-1]) == (28, NOON)
    assert [(one.train, sum(one.counts)) for one in blocks.series] == [("a", 4), ("b", 3), ("c", 2)]
    assert blocks.series[0].counts[-13] == 4  # three days are twelve blocks
    assert (blocks.other[-13], blocks.other[-1], sum(blocks.other)) == (2, 1, 3)


async def test_runs_are_counted_by_state(h: StatsHarness) -> None:
    await h.runs(completed=2, failed=1)
    await h.app.queue_many("job", [("complete", 0)] * 3)
    await h.cycle("job_dispatcher")

    states = await h.app.stats.states()

    assert (states.pending.number, states.in_progress.number) == (3, 0)
    assert (states.completed, states.failed, states.cancelled) == (2, 1, 0)


async def test_administrative_trains_are_left_out_unless_they_are_wanted(h: StatsHarness) -> None:
    await h.app.manifests.schedule_once(h.app.trains.get("job"), "once", ("complete", 0))
    await h.run_until_idle()

    assert (await h.app.stats.home()).executions_today == 1
    assert (await h.app.stats.home(admin=True)).executions_today > 1
    await h.advance(minutes=5)
    await h.cycle("totals")
    assert (await h.app.stats.home()).executions_today == 1
    assert (await h.app.stats.home(admin=True)).executions_today > 1
    assert [one.train for one in await h.app.stats.durations()] == ["job"]


async def test_the_queue_and_manifests_are_counted(h: StatsHarness) -> None:
    await h.app.queue_many("job", [("complete", 0)] * 3)
    await h.app.queue("job", ("complete", 0), delay=timedelta(hours=1))
    for name in ("one", "two", "three"):
        await h.app.manifests.schedule(h.app.trains.get("job"), name, ("complete", 0), every(hours=1))
    await h.app.manifests.disable("two")

    home = await h.app.stats.home()

    assert (home.queue_depth, home.active_manifests) == (Count(4), Count(2))


async def test_groups_have_their_counters(h: StatsHarness) -> None:
    await h.runs(completed=3, failed=1)
    await h.advance(minutes=5)
    await h.cycle("totals")
    await h.runs(completed=1)
    await h.app.manifests.schedule(h.app.trains.get("job"), "m", ("complete", 0), every(hours=1), group="z")

    etl, other = await h.app.stats.groups()

    assert (etl.group.name, etl.executions, etl.completed, etl.failed) == ("etl", 5, 4, 1)
    assert (etl.last_run_at, etl.manifests) == (h.now, 0)
    assert (other.group.name, other.manifests, other.executions, other.last_run_at) == ("z", 1, 0, None)
    assert await h.app.stats.groups(name="z") == await h.app.stats.groups(after="etl") == [other]
    with pytest.raises(NotFound, match="no group 'nobody'"):
        await h.app.stats.groups(name="nobody")


async def test_groups_are_drawn_with_their_dependencies(url: str) -> None:
    app = Trax(url)

    @app.train
    async def job(_: str) -> None: ...

    extract = app.schedule(job, "extract", "", every(hours=1), group="extract")
    extract.then_include(job, "load", "", group="load").then_include(job, "report", "", group="report")
    app.schedule(job, "alone", "", every(hours=1), group="alone")
    async with Harness(app, now=NOON):
        whole, around = await app.stats.graph(), await app.stats.graph("extract")
        alone = await app.stats.graph("alone")

    assert whole.edges == (("extract", "load"), ("load", "report"))
    assert (whole.groups, whole.exact) == (("extract", "load", "report"), True)
    assert (around.groups, around.edges) == (("extract", "load"), (("extract", "load"),))
    assert (alone.groups, alone.edges) == (("alone",), ())


async def test_two_servers_that_add_the_same_totals_count_them_once(h: StatsHarness) -> None:
    await h.runs(completed=3)
    await h.advance(minutes=5)
    store = await h.app.context.store.open()
    step = await store.ask(stats.next_step, now=h.now)
    assert step

    assert await store.call(stats.add, step)
    assert not await store.call(stats.add, step)

    assert (await h.app.stats.home()).executions_today == 3


async def test_a_reader_leaves_recent_totals_to_the_schedulers(h: StatsHarness) -> None:
    store = await h.app.context.store.open()
    await h.runs(completed=3)

    await h.advance(minutes=2)
    await update_totals(store, min_age=NO_SCHEDULER_AFTER)
    assert await store.ask(stats.load_totals_end) is None

    await h.advance(minutes=3)
    await update_totals(store, min_age=NO_SCHEDULER_AFTER)
    assert await store.ask(stats.load_totals_end) == NOON + timedelta(minutes=1)
    assert (await h.app.stats.home()).executions_today == 3


async def test_a_reader_without_a_scheduler_keeps_the_totals_current(h: StatsHarness) -> None:
    store = await h.app.context.store.open()
    await h.runs(completed=3)
    await h.advance(hours=3)
    await h.runs(completed=2)
    await h.advance(minutes=10)

    async with h.app.stats.keep_up_in_background():
        all_of_it = NOON + timedelta(hours=3, minutes=1)
        await asyncio.to_thread(until, lambda: store.read(stats.load_totals_end) == all_of_it)

    assert (await h.app.stats.home()).executions_today == 5


async def test_old_sums_are_forgotten_and_old_runs_still_count_for_their_group(h: StatsHarness) -> None:
    await h.runs(completed=3)
    await h.advance(minutes=5)
    await h.cycle("totals")
    await h.advance(days=9)
    await h.runs(completed=1)
    await h.advance(minutes=5)
    await h.cycle("totals")

    store = await h.app.context.store.open()
    kept = await store.ask(lambda c: c.execute(select(tables(c).tally.c.span, tables(c).tally.c.train)).all())
    (group,) = await h.app.stats.groups()

    assert sorted(kept) == [("hour", "job"), ("minute", "job")]
    assert group.completed == 4


async def test_under_great_load_the_numbers_are_marked_inexact(
    h: StatsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "LATEST_AT_MOST", 3)
    await h.runs(completed=3)
    assert (await h.app.stats.home()).exact
    await h.advance(minutes=2)
    await h.runs(completed=3)

    home = await h.app.stats.home()
    assert (home.exact, home.executions_today) == (False, 4)

    await h.advance(minutes=2)
    await h.cycle("totals")
    home = await h.app.stats.home()
    assert (home.exact, home.executions_today, home.completed_per_minute) == (True, 6, 6 / 5)


async def test_while_nothing_ends_nothing_is_written(h: StatsHarness) -> None:
    await h.runs(completed=1)
    await h.advance(minutes=5)
    await h.cycle("totals")
    store = await h.app.context.store.open()

    await h.advance(hours=1)

    assert await store.ask(stats.next_step, now=h.now) is None


async def test_an_overview_agrees_with_the_single_queries(h: StatsHarness) -> None:
    await h.runs(completed=3, failed=2, seconds=40)
    stats = h.app.stats

    whole = await stats.overview("hour", limit=5)
    some = await stats.overview(without={"blocks", "failing", "states"})

    assert whole.home == await stats.home()
    assert whole.throughput == await stats.throughput("hour")
    assert whole.states == await stats.states()
    assert whole.durations == await stats.durations(limit=5)
    assert whole.failing == await stats.top_failures(limit=5)
    assert whole.blocks == await stats.blocks()
    assert (some.blocks, some.failing, some.states) == (None, None, None)
    assert some.throughput == await stats.throughput("minute")
