"""The start of a server, on a database in use or not reachable yet."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.flow_seeding import USERS, Railway, Table, in_memory, insert, names, queued, rows

from trax import Group, Item, every
from trax.errors import DefinitionError, StoreError, StoreUnavailable
from trax.server.start import start
from trax.store import Store
from trax.testing import Harness

if TYPE_CHECKING:
    from pathlib import Path

    from trax.engine.seed import SeedPlan

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)
TABLES = [Table(table=f"t{number}") for number in range(20)]


# A database that is not there yet


class Faulty(Store):
    """Answers the first calls with an error."""

    def __init__(self, url: str, *faults: Exception) -> None:
        super().__init__(url, clock=lambda: NOON)
        self.open()
        self.faults = list(faults)

    async def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        if self.faults:
            raise self.faults.pop(0)
        return await super().call(function, *args, **kwargs)


class Pauses(list[float]):
    """Sleeps without sleeping, and remembers for how long."""

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


async def started(store: Store, pauses: Pauses) -> SeedPlan:
    app = Railway()
    app.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    try:
        return await start(
            store, app.context.declarations.timetable(), app.context.settings, sleep=pauses.sleep
        )
    finally:
        store.close()


GONE = StoreUnavailable("the database is restarting")


@pytest.mark.parametrize("times", [0, 1, 4])
async def test_a_passing_fault_is_waited_out(times: int, caplog: pytest.LogCaptureFixture) -> None:
    pauses = Pauses()

    with caplog.at_level(logging.WARNING):
        plan = await started(Faulty("memory://", *[GONE] * times), pauses)

    assert len(plan.added) == 1
    assert pauses == [2, 4, 8, 16][:times]
    assert [record.getMessage() for record in caplog.records] == [
        f"server: start failed, trying again in {pause} s: the database is restarting" for pause in pauses
    ]


async def test_the_fifth_fault_stops_the_server() -> None:
    pauses = Pauses()
    store = Faulty("memory://", *[GONE] * 5)

    with pytest.raises(StoreUnavailable, match="restarting"):
        await started(store, pauses)

    assert (pauses, store.faults) == ([2, 4, 8, 16], [])


@pytest.mark.parametrize(
    "fault", [StoreError("out of range"), DefinitionError("no"), ZeroDivisionError("oh")]
)
async def test_any_other_fault_stops_the_server_at_once(fault: Exception) -> None:
    pauses = Pauses()

    with pytest.raises(type(fault)):
        await started(Faulty("memory://", fault, fault), pauses)

    assert pauses == []


async def test_being_stopped_during_a_pause_ends_the_start() -> None:
    store = Faulty("memory://", GONE)
    is_pausing = asyncio.Event()

    async def pause(_seconds: float) -> None:
        is_pausing.set()
        await asyncio.Event().wait()

    declared = Railway().context
    task = asyncio.create_task(
        start(store, declared.declarations.timetable(), declared.settings, sleep=pause)
    )
    await is_pausing.wait()
    task.cancel()

    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    store.close()


@in_memory
async def test_a_start_reports_its_progress(url: str) -> None:
    app = Railway(url)
    app.schedule_many(app.sync_table, "many", dict.fromkeys(range(1_500), USERS), FIVE_MINUTES)
    heard: list[tuple[int, int]] = []
    context = app.context

    await start(
        await context.store.open(),
        context.declarations.timetable(),
        context.settings,
        on_progress=lambda done, total: heard.append((done, total)),
    )

    assert heard == [(1_000, 1_500), (1_500, 1_500)]
    app.close()


# Other servers


def server(url: str) -> Railway:
    """One of many that run the same code."""
    app = Railway(url)
    app.schedule_many(
        app.sync_table,
        "sync",
        {job.table: job for job in TABLES},
        FIVE_MINUTES,
        group=Group("etl", max_active_jobs=4, priority=20),
    ).include_many(
        app.sync_table,
        "load",
        [Item(job.table, job, depends_on=f"sync-{job.table}") for job in TABLES],
        dormant=True,
    )
    app.schedule(app.sync_table, "a", USERS, FIVE_MINUTES).then_include(app.sync_table, "b", USERS)
    app.schedule_once(app.sync_table, "once", USERS, timedelta(hours=1))
    app.group("reserved", max_active_jobs=1)
    return app


async def left_by(url: str, *, servers: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The manifests and groups that so many servers leave when they start at once, whatever their ids are."""
    harnesses = [Harness(server(url), now=NOON) for _ in range(servers)]
    await asyncio.gather(*(h.__aenter__() for h in harnesses))
    groups = await rows(harnesses[0], "manifest_group")
    manifests = await rows(harnesses[0], "manifest")
    await asyncio.gather(*(h.__aexit__() for h in harnesses))

    for group in groups:  # when a new priority is applied once more: PostgreSQL alone needs that
        for name in ("priority_changed_at", "apply_priority_at", "priority_horizon"):
            del group[name]
    group_of = {group.pop("id"): group["name"] for group in groups}
    name_of = {manifest.pop("id"): manifest["external_id"] for manifest in manifests}
    for manifest in manifests:
        manifest["group_id"] = group_of[manifest["group_id"]]
        manifest["depends_on_id"] = name_of.get(manifest["depends_on_id"])
    return manifests, sorted(groups, key=lambda group: group["name"])


async def test_ten_servers_that_start_at_once_leave_the_same_as_one(shared_url: str, tmp_path: Path) -> None:
    one = await left_by(f"sqlite:///{tmp_path}/one.db", servers=1)

    ten = await left_by(shared_url, servers=10)

    assert ten == one
    assert len(one[0]) == 43


@pytest.fixture(params=["sqlite", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that several servers can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ten.db"
    return request.getfixturevalue("postgres_url")


async def test_a_server_that_starts_later_leaves_what_the_others_have_done(shared_url: str) -> None:
    async with Harness(server(shared_url), now=NOON) as first:
        await first.run_until_idle()
        await first.app.manifests.trigger("a")
        before = [
            await rows(first, table) for table in ("manifest", "manifest_group", "metadata", "work_queue")
        ]

        async with Harness(server(shared_url), now=NOON + timedelta(minutes=1)) as second:
            after = [
                await rows(second, table)
                for table in ("manifest", "manifest_group", "metadata", "work_queue")
            ]

    assert after == before


# What a server left behind when it died


class Depot:
    """Workers and their runs, as they stand in the tables."""

    def __init__(self, h: Harness) -> None:
        self._h = h
        self._runs = 0

    async def worker(self, *, silent_for: timedelta) -> int:
        return await insert(
            self._h,
            "worker",
            host="somewhere",
            host_environment="host",
            host_instance_id="1",
            pid=1,
            concurrency=4,
            trains="[]",
            started_at=NOON - timedelta(hours=1),
            heartbeat_at=NOON - silent_for,
        )

    async def run(
        self, worker_id: int | None, manifest: str | None = None, state: str = "in_progress"
    ) -> int:
        self._runs += 1
        return await insert(
            self._h,
            "metadata",
            external_id=f"{self._runs:032}",
            train="sync",
            state=state,
            worker_id=worker_id,
            manifest_id=(await self._h.app.manifests.get(manifest)).id if manifest else None,
            created_at=NOON - timedelta(hours=1),
            started_at=None if state == "pending" else NOON - timedelta(hours=1),
            ended_at=NOON if state == "completed" else None,
        )


async def test_only_runs_whose_worker_is_gone_are_failed(url: str) -> None:
    async with Harness(Railway(url), now=NOON) as h:
        depot = Depot(h)
        alive = await depot.worker(silent_for=timedelta(seconds=20))
        silent = await depot.worker(silent_for=timedelta(seconds=21))
        lost = [await depot.run(silent), await depot.run(999)]
        kept = [
            await depot.run(alive),
            await depot.run(None),
            await depot.run(silent, state="pending"),
            await depot.run(silent, state="completed"),
        ]
        before = [await h.app.executions.get(run) for run in kept]

        await h.seed()

        assert [await h.app.executions.get(run) for run in kept] == before
        for run in [await h.app.executions.get(each) for each in lost]:
            assert (run.state, run.ended_at, run.failure_exception) == ("failed", NOON, "WorkerLost")
            assert run.failure_reason == "its worker missed its heartbeat"


async def test_a_lost_run_counts_as_a_failure_and_is_retried(url: str) -> None:
    app = Railway(url)
    app.schedule(app.sync_table, "users", USERS, FIVE_MINUTES)
    app.schedule(app.sync_table, "last-try", USERS, FIVE_MINUTES, max_retries=1)
    async with Harness(app, now=NOON) as h:
        for external_id in await names(h):
            await Depot(h).run(999, external_id)

        await h.seed()
        await h.cycle("manifest_manager")

        (entry,) = await queued(h)
        assert (entry.manifest, entry.origin) == ("users", "retry")
        assert entry.scheduled_at == NOON + timedelta(minutes=5)
        assert [letter.manifest for letter in await app.dead_letters.list()] == ["last-try"]


@in_memory
async def test_recovery_can_be_switched_off(url: str) -> None:
    async with Harness(Railway(url, recover_stuck_jobs_on_startup=False), now=NOON) as h:
        run = await Depot(h).run(999)

        await h.seed()

        assert (await h.app.executions.get(run)).state == "in_progress"
