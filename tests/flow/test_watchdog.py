"""The watchdog repairs manifests that would never run again, and no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, text
from tests.support.manager_harness import ManagerHarness
from tests.support.plans import rows_read, steps_taken
from tests.support.running import run_queued

from trax import Cancel, Item, Retry, Snooze, cron, current, every, exclude
from trax.records import ScheduleType
from trax.server import loops
from trax.server.loops import repair_now
from trax.store.dialect import is_sqlite
from trax.store.manifests import manifest_due
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.store import Connection, Store

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)  # a Monday
ALWAYS = exclude.days_of_week("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@pytest.fixture
async def harness(url: str) -> AsyncGenerator[ManagerHarness]:
    """Manifests of every kind."""
    made = ManagerHarness(url, TEN)
    retry = Retry(max_retries=2, delay=timedelta(minutes=1))
    hourly = made.schedule(made.job, "hourly", "hourly", every(hours=1), retry=retry, group="a")
    hourly.include(made.job, "after", "after", retry=retry, group="a")
    loads = [Item(one, f"load-{one}", depends_on="hourly") for one in "xy"]
    hourly.include_many(made.job, "load", loads, dormant=True, max_retries=1, group="b")
    made.schedule(made.job, "daily", "daily", cron("0 7 * * *"), group="b", max_retries=1, start="now")
    made.schedule(made.job, "often", "often", every(minutes=7), max_instances=2, retry=retry, group="b")
    made.schedule(made.job, "never", "never", every(hours=1), exclude=ALWAYS, group="a")
    made.app.schedule_once(made.job, "once", "once", delay=timedelta(hours=2), max_retries=1)
    async with made:
        yield made


def repair(harness: ManagerHarness) -> list[str]:
    return harness.store.run(repair_now, harness.store, harness.app.context)


def silence(harness: ManagerHarness, *external_ids: str, **columns: Any) -> None:
    for external_id in external_ids:
        harness.change_manifest(external_id, next_due_at=None, **columns)


async def test_a_manifest_that_would_never_run_again_becomes_due_now(
    harness: ManagerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await harness.run_until_idle()
    silence(harness, "hourly", "daily", "once", "often")

    assert repair(harness) == ["daily", "hourly", "often", "once"]
    assert repair(harness) == []

    await harness.manage()
    planned = {one: (await harness.manifest(one)).next_due_at for one in ("hourly", "daily", "once", "often")}
    assert planned == {
        "hourly": TEN + timedelta(hours=1),
        "daily": TEN + timedelta(hours=21),
        "once": TEN + timedelta(hours=2),
        "often": TEN + timedelta(minutes=7),
    }
    (entry,) = await harness.app.audit.list(action="manifests.repair")
    assert (entry.actor, entry.via, entry.ids) == ("watchdog", "system", ("daily", "hourly", "often", "once"))
    warned = [line for line in caplog.messages if "no next due time" in line]
    assert len(warned) == 1
    assert warned[0].startswith("manifests: 4 had no next due time, no entry and no run")
    assert warned[0].endswith("they are due now: daily, hourly, often, once")
    assert harness.app.context.counters.repaired_manifests == 4


async def test_a_missed_success_of_a_parent_and_an_unhandled_failure_are_repaired(
    harness: ManagerHarness,
) -> None:
    await harness.manage()
    await run_queued(harness)
    silence(harness, "after")
    silence(harness, "hourly", failure_count=1)
    silence(harness, "daily", failure_count=1)

    assert repair(harness) == ["after", "daily", "hourly"]

    await harness.manage()
    assert {entry.manifest for entry in harness.queued()} >= {"after", "hourly"}
    assert [letter.manifest for letter in await harness.letters()] == ["daily"]


async def test_a_manifest_that_rests_for_a_reason_is_left_alone(harness: ManagerHarness) -> None:
    await harness.run_until_idle()
    silence(harness, "hourly", enabled=False)
    harness.insert_entry("daily")
    silence(harness, "daily")
    for _ in range(2):
        harness.insert_run("often")
    silence(harness, "often")
    silence(harness, "once", last_successful_run=TEN)

    assert repair(harness) == []  # nor what is excluded for good, dormant, or waits for its parent


async def test_a_manifest_held_back_by_a_disabled_group_or_a_letter_is_left_alone(
    harness: ManagerHarness,
) -> None:
    harness.errors["daily"] = RuntimeError("no luck")
    await harness.run_until_idle()
    await harness.app.groups.update("a", enabled=False)
    silence(harness, "hourly", "daily")

    assert [letter.manifest for letter in await harness.letters()] == ["daily"]
    assert repair(harness) == []


async def test_a_manifest_this_server_cannot_evaluate_is_repaired(harness: ManagerHarness) -> None:
    await harness.run_until_idle()
    silence(harness, "daily", time_zone="Mars/Olympus")

    assert repair(harness) == ["daily"]


async def test_the_watchdog_runs_soon_after_the_start_and_every_five_minutes(harness: ManagerHarness) -> None:
    silence(harness, "hourly")

    loop = loops.watchdog(harness.app.context, harness.store)
    await loop._turn()  # pyright: ignore[reportPrivateUsage]

    assert (await harness.manifest("hourly")).next_due_at == TEN
    assert loop._poll_seconds() == 300  # pyright: ignore[reportPrivateUsage]
    assert loop._first_after == loops.HOUSEKEEPING_DELAY_SECONDS  # pyright: ignore[reportPrivateUsage]


NAMES = ("hourly", "after", "daily", "often", "never", "once", "load-x", "load-y")
FATES = (None, None, RuntimeError("no luck"), Cancel("stopped"), Snooze(timedelta(minutes=30)))


class History:
    """Somebody does something at random, and after each step nothing is to be repaired."""

    def __init__(self, harness: ManagerHarness, seed: int) -> None:
        self.harness = harness
        self.chance = Random(seed)  # noqa: S311
        harness.during |= {"hourly": self._wake, "daily": self._meanwhile, "often": self._meanwhile}

    async def step(self) -> None:
        deeds = (self._go_on, self._go_on, self._manage, self._trigger, self._withdraw, self._cancel)
        deeds += (self._switch, self._switch_group, self._resolve)
        for name in NAMES:
            fate = self.chance.choice(FATES)
            self.harness.errors.pop(name, None)
            if fate is not None:
                self.harness.errors[name] = fate
        await self.chance.choice(deeds)()

    async def _go_on(self) -> None:
        await self.harness.advance(minutes=self.chance.choice([0, 1, 7, 30, 60, 600]))
        if self.chance.random() < 0.5:
            await self.harness.manage()
        await run_queued(self.harness)

    async def _manage(self) -> None:
        await self.harness.manage()
        await self.harness.cycle("job_dispatcher")
        await self.harness.manage()

    async def _trigger(self) -> None:
        delay = self.chance.choice([None, timedelta(minutes=20)])
        await self.harness.app.manifests.trigger(self.chance.choice(NAMES), delay=delay)

    async def _withdraw(self) -> None:
        queued = [entry.id for entry in self.harness.queued()]
        await self.harness.app.work_queue.cancel(self.chance.sample(queued, len(queued) // 2))

    async def _cancel(self) -> None:
        runs = [run.id for run in await self.harness.app.executions.list(state="pending")]
        await self.harness.app.executions.cancel(runs[: len(runs) // 2 + 1])

    async def _switch(self) -> None:
        manifests = self.harness.app.manifests
        await self.chance.choice([manifests.enable, manifests.enable, manifests.disable])(
            self.chance.choice(NAMES)
        )

    async def _switch_group(self) -> None:
        enabled = self.chance.random() < 0.7
        await self.harness.app.groups.update(self.chance.choice("ab"), enabled=enabled)

    async def _resolve(self) -> None:
        letters = [letter.id for letter in await self.harness.letters("awaiting_intervention")]
        if self.chance.random() < 0.5:
            await self.harness.app.dead_letters.requeue(letters)
        else:
            await self.harness.app.dead_letters.acknowledge(letters, "seen")

    async def _wake(self) -> None:
        run = current()
        if run is not None and self.chance.random() < 0.5:
            await run.activate("load-x", "load-x")
        await self._meanwhile()

    async def _meanwhile(self) -> None:
        """The manager looks while a run is active."""
        if self.chance.random() < 0.5:
            await self.harness.advance(minutes=self.chance.choice([1, 60]))
            await self.harness.manage()


@pytest.mark.parametrize("seed", [5, 11])
async def test_a_long_history_leaves_nothing_to_repair(harness: ManagerHarness, seed: int) -> None:
    history = History(harness, seed)

    for number in range(150):
        await history.step()

        assert repair(harness) == [], f"after step {number}"
    assert len(harness.ran) > 20


def many(connection: Connection, count: int, **columns: Any) -> None:
    """So many manifests that have a planned look."""
    t = tables(connection)
    values: dict[str, Any] = {"train": "job", "group_id": 1, "origin": "runtime", "max_retries": 3}
    values |= {"misfire_policy": "fire_once_now", "created_at": TEN, "updated_at": TEN}
    rows = [
        {"external_id": f"{columns['schedule_type']}-{count}-{one}", **values, **columns}
        for one in range(count)
    ]
    connection.execute(insert(t.manifest), rows)


def effort(store: Store) -> int:
    if store.read(is_sqlite):
        return steps_taken(store, manifest_due.find_without_next_due)
    store.run(lambda connection: connection.execute(text("ANALYZE")))
    return rows_read(
        store, manifest_due.find_without_next_due, of={"manifest", "metadata", "work_queue", "dead_letter"}
    )


def test_the_watchdog_reads_only_manifests_without_a_due_time(store: Store) -> None:
    group = {"name": "g", "created_at": TEN, "updated_at": TEN}
    store.run(lambda connection: connection.execute(insert(tables(connection).manifest_group).values(group)))
    store.run(many, 300, schedule_type=ScheduleType.ON_DEMAND)
    busy: dict[str, Any] = {
        "schedule_type": ScheduleType.INTERVAL,
        "interval_seconds": 60,
        "next_due_at": TEN,
    }
    store.run(many, 2_000, **busy)
    beside_some = effort(store)

    store.run(many, 8_000, **busy)

    assert effort(store) <= beside_some * 1.1
