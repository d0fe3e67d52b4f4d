"""From the work queue to a record, seen by an app: admission, limits and the rows that remain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Trax, every
from trax.records import QueueStatus, State
from trax.worker.dispatcher import dispatch_now

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
SHARED = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)


def build_harness(
    url: str, *manifests: str, group: str | None = None, **settings: int | None
) -> ManagerHarness:
    h = ManagerHarness(url, TEN, **settings)
    for name in manifests:
        h.schedule(h.job, name, name, FIVE_MINUTES, **({"group": group} if group else {}))
    return h


async def dispatched(h: ManagerHarness) -> list[str | None]:
    """Whose entries one cycle lets through, in order."""
    cycle = await h.cycle("job_dispatcher")
    return [entry.manifest or entry.input for entry in h.entries(cycle.entry_ids)]


async def test_a_run_belongs_to_the_manifest_of_its_entry(url: str) -> None:
    async with build_harness(url, "sync", group="etl") as h:
        await h.manage()
        entry = h.entry()

        await h.cycle("job_dispatcher")

        (run,) = await h.app.executions.list()
        (passed,) = h.entries([entry.id])
        assert (run.manifest, run.group, run.external_id) == ("sync", "etl", entry.external_id)
        assert (run.train, run.state, run.attempt) == ("job", State.PENDING, 1)
        assert (passed.status, passed.metadata_id) == (QueueStatus.DISPATCHED, run.id)
        assert passed.dispatched_at == h.now


async def test_a_queued_entry_is_admitted_after_its_manifest_is_disabled(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.manage()
        await h.app.manifests.disable("sync")

        assert await dispatched(h) == ["sync"]


async def test_a_withdrawn_entry_is_not_admitted(url: str) -> None:
    async with build_harness(url, "kept", "withdrawn") as h:
        await h.manage()
        await h.app.work_queue.cancel([h.entry("withdrawn").id])

        assert await dispatched(h) == ["kept"]
        assert await dispatched(h) == []


async def test_a_direct_run_counts_against_the_limit(url: str) -> None:
    async with build_harness(url, max_active_jobs=1) as h:
        seen: list[list[str | None]] = []

        async def look() -> None:
            seen.append(await dispatched(h))

        h.during["now"] = look
        await h.app.queue(h.job, "later")
        await h.app.run(h.job, "now")

        assert seen == [[]]
        assert await dispatched(h) == ["later"]


async def test_records_of_administrative_trains_do_not_count_against_the_limit(url: str) -> None:
    async with build_harness(url, "sync", max_active_jobs=1) as h:
        for train in ("trax.manifest_manager", "trax.job_dispatcher"):
            h.insert_run(train=train, exempt=True)
        await h.manage()

        assert await dispatched(h) == ["sync"]


async def test_triggered_manifests_keep_the_limit_of_their_group(url: str) -> None:
    async with build_harness(url, "one", "two", group="etl", max_active_jobs=None) as h:
        await h.app.groups.update("etl", max_active_jobs=1)
        for name in ("one", "two"):
            await h.app.manifests.trigger(name)

        assert await dispatched(h) == ["one"]
        await h.work()
        assert await dispatched(h) == ["two"]


@pytest.mark.parametrize(
    ("fails", "state"), [(False, State.COMPLETED), (True, State.FAILED)], ids=["completes", "fails"]
)
async def test_a_job_that_is_over_leaves_one_record_and_nothing_to_run(
    url: str, fails: bool, state: State
) -> None:
    async with build_harness(url, "sync") as h:
        if fails:
            h.errors["sync"] = RuntimeError("no luck")
        await h.manage()

        assert await run_queued(h) == 1

        assert await h.work() == 0
        (run,) = await h.app.executions.list()
        assert (run.train, run.state) == ("job", state)


async def test_only_a_success_moves_the_last_success_to_its_end(url: str) -> None:
    async with build_harness(url, "sync") as h:

        async def take_a_minute() -> None:
            await h.advance(minutes=1)

        h.during["sync"] = take_a_minute
        await h.run_until_idle()
        assert (await h.manifest("sync")).last_successful_run == TEN + timedelta(minutes=1)

        await h.advance(minutes=5)
        await h.fails("sync")
        failed = await h.manifest("sync")
        assert (failed.last_successful_run, failed.failure_count) == (TEN + timedelta(minutes=1), 1)


@SHARED
@pytest.mark.parametrize(("limit", "passed"), [(None, 50), (20, 20)])
async def test_servers_that_dispatch_at_once_make_one_run_of_an_entry_and_keep_to_the_limit(
    url: str, limit: int | None, passed: int
) -> None:
    async with build_harness(url, max_active_jobs=limit) as h:
        await h.app.queue_many(h.job, [str(number) for number in range(50)])
        with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
            apps = [Trax(url, max_active_jobs=limit) for _ in range(4)]
            for app in apps:
                stack.callback(app.close)

            cycles = list(threads.map(_dispatch_often, apps, [Barrier(len(apps))] * len(apps)))

        runs = await h.app.executions.list(limit=1000)
        made = [one for cycle in cycles for one in cycle]
        assert sorted(made) == sorted(run.id for run in runs)
        assert len(runs) == len({run.external_id for run in runs}) == passed


def _dispatch_often(app: Trax, all_are_open: Barrier) -> list[int]:
    """A few cycles of one server; gives the runs it made."""
    store = app.context.store.open_blocking()
    all_are_open.wait(30)
    cycles = [store.run(dispatch_now, store, app.context) for _ in range(5)]
    return [one for cycle in cycles for one in cycle.metadata_ids]
