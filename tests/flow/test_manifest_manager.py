"""One cycle of the ManifestManager: which manifests get an entry, and that none holds up the others."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text
from tests.support.manager_harness import MANAGER, ManagerHarness
from tests.support.running import run_queued

from trax import Group, current, every, exclude, fire_all
from trax.engine import manifest_manager
from trax.records import Origin, State
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store.manifests import manifest_due
from trax.store.pipeline import run_together
from trax.store.queue import work_queue

if TYPE_CHECKING:
    from trax.store import Connection

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)  # a Monday
FIVE_MINUTES = every(minutes=5)


def at(hour: int, minute: int = 0, second: int = 0, *, day: int = 1) -> datetime:
    return datetime(2027, 3, day, hour, minute, second, tzinfo=UTC)


def build_harness(url: str, *external_ids: str, **settings: Any) -> ManagerHarness:
    """Each of these every five minutes, in a group of its own, with its name as input."""
    made = ManagerHarness(url, TEN, **settings)
    for external_id in external_ids:
        made.schedule(made.job, external_id, external_id, FIVE_MINUTES)
    return made


# when


async def test_a_manifest_without_a_success_is_queued_at_once(url: str) -> None:
    async with build_harness(url, "sync") as h:
        assert await h.manage() == ["sync"]


async def test_an_interval_counts_from_the_last_success_to_the_second(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.run_until_idle()

        h.now = at(10, 4, 59)
        assert await h.manage() == []
        h.now = at(10, 5)
        assert await h.manage() == ["sync"]


async def test_three_missed_occurrences_make_one_entry(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.run_until_idle()

        h.now = at(10, 17)
        await h.run_until_idle()

        assert h.ran == ["sync", "sync"]
        assert await h.manage() == []


async def test_do_nothing_skips_what_is_too_late(url: str) -> None:
    moments = {
        at(10, 10, 30): True,
        at(10, 11): True,
        at(10, 11, 1): False,
        at(10, 12): False,
        at(13, 0, 30): True,
        at(13, 2): False,
    }
    h = ManagerHarness(url, TEN)
    for moment in moments:
        h.schedule(h.job, f"{moment:%X}", "x", FIVE_MINUTES, on_misfire="do_nothing")
    async with h:
        await h.run_until_idle()
        for moment in moments:
            await h.app.manifests.disable(f"{moment:%X}")

        for moment, is_due in moments.items():
            h.now = moment
            await h.app.manifests.enable(f"{moment:%X}")
            assert await h.manage() == ([f"{moment:%X}"] if is_due else [])
            await h.app.manifests.disable(f"{moment:%X}")


async def test_a_manifests_own_threshold_overrides_the_default(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(
        h.job,
        "sync",
        "sync",
        FIVE_MINUTES,
        on_misfire="do_nothing",
        misfire_threshold=timedelta(minutes=3),
    )
    async with h:
        await h.run_until_idle()

        h.now = at(10, 12)

        assert await h.manage() == ["sync"]


async def test_a_skipped_occurrence_plans_the_next_one(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, on_misfire="do_nothing")
    async with h:
        await h.run_until_idle()
        h.now = at(13, 2)
        await h.manage()

        assert (await h.manifest("sync")).next_due_at == at(13, 5)
        h.now = at(13, 5)
        assert await h.manage() == ["sync"]


async def test_a_once_manifest_runs_at_its_moment_and_is_disabled_by_its_success(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=timedelta(minutes=5))
    async with h:
        h.now = at(10, 4, 59)
        assert await h.manage() == []
        h.now = at(10, 5)
        assert await h.manage() == ["migrate"]
        await run_queued(h)

        assert not (await h.manifest("migrate")).enabled
        h.now = at(23)
        assert await h.manage() == []


async def test_a_manifest_without_a_schedule_or_parent_is_never_queued(url: str) -> None:
    async with build_harness(url, "none", "on_demand") as h:
        for kind in ("none", "on_demand"):
            h.change_manifest(kind, schedule_type=kind)

        assert await h.manage() == []
        h.now = at(20)
        assert await h.manage() == []


async def test_an_excluded_manifest_is_evaluated_again_when_the_exclusion_ends(url: str) -> None:
    h = ManagerHarness(url, at(23, 59, 59, day=6))
    h.schedule(h.job, "report", "report", FIVE_MINUTES, exclude=exclude.days_of_week("sat", "sun"))
    async with h:
        assert await h.manage() == []

        assert (await h.manifest("report")).next_due_at == at(0, day=8)
        h.now = at(0, day=8)
        assert await h.manage() == ["report"]


async def test_fire_all_queues_missed_occurrences_except_excluded_ones(url: str) -> None:
    met: list[datetime | None] = []

    async def note() -> None:
        run = current()
        assert run is not None
        met.append(run.scheduled_for)

    h = ManagerHarness(url, TEN)
    closed = exclude.time_window("10:10", "10:30")
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, on_misfire=fire_all(10), exclude=closed)
    h.during["sync"] = note
    async with h:
        await h.run_until_idle()

        h.now = at(10, 36)
        await h.run_until_idle()

        assert met == [TEN, at(10, 5), at(10, 30), at(10, 35)]


async def test_variance_delays_the_next_run_by_at_most_its_value(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, variance=timedelta(seconds=60))
    async with h:
        await h.run_until_idle()

        planned = (await h.manifest("sync")).next_due_at
        assert planned is not None
        assert at(10, 5) <= planned <= at(10, 6)
        h.now = planned - timedelta(microseconds=1)
        assert await h.manage() == []
        h.now = planned
        assert await h.manage() == ["sync"]


# guards


async def test_a_manifest_with_a_scheduled_entry_is_not_queued_again(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.manage()
        await h.app.manifests.enable("sync")  # has the manager look again

        assert await h.manage() == []
        assert len(h.queued("sync")) == 1


async def test_a_manifest_with_an_active_run_is_not_queued(url: str) -> None:
    async with build_harness(url, "waits", "runs") as h:
        h.insert_run("waits", state="pending")
        h.insert_run("runs", state="in_progress")

        assert await h.manage() == []


async def test_an_awaiting_dead_letter_holds_a_manifest_back_until_it_is_acknowledged(url: str) -> None:
    async with build_harness(url, "sync") as h:
        letter = await h.dead_letter("sync")
        await h.advance(days=1)
        await h.app.manifests.enable("sync")
        assert await h.manage() == []

        await h.app.dead_letters.acknowledge([letter.id], "the disk was full")

        assert await h.manage() == ["sync"]
        assert h.entry("sync").scheduled_at is None


async def test_a_disabled_manifest_is_queued_once_it_is_enabled(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.app.manifests.disable("sync")
        assert await h.manage() == []
        await h.advance(hours=1)
        assert await h.manage() == []

        await h.app.manifests.enable("sync")

        assert await h.manage() == ["sync"]


async def test_a_disabled_group_holds_its_manifests_until_it_is_enabled(url: str) -> None:
    h = build_harness(url, "other")
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, group=Group("etl", enabled=False))
    async with h:
        assert await h.manage() == ["other"]

        await h.app.groups.update("etl", enabled=True)

        assert await h.manage() == ["sync"]


async def test_a_manifest_enabled_before_its_due_time_waits_for_it(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.run_until_idle()
        await h.app.manifests.disable("sync")
        h.now = at(10, 2)
        await h.app.manifests.enable("sync")

        assert await h.manage() == []
        assert (await h.manifest("sync")).next_due_at == at(10, 5)


async def test_runs_may_overlap_up_to_max_instances_each_for_its_own_occurrence(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "slow", "slow", FIVE_MINUTES, max_instances=2)
    occurrences: list[datetime | None] = []

    async def meanwhile() -> None:
        run = current()
        assert run is not None
        occurrences.append(run.scheduled_for)
        await h.advance(minutes=5)
        if len(occurrences) == 1:
            assert await h.manage() == ["slow"], "the next occurrence does not wait for the first run"
            await run_queued(h)
        else:
            assert await h.manage() == [], "two are running, which is the most"

    h.during["slow"] = meanwhile
    async with h:
        await h.manage()
        await run_queued(h)

        assert occurrences == [TEN, at(10, 5)]
        assert await h.manage() == ["slow"]


async def test_a_manifest_with_overlapping_runs_has_one_queued_entry(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "slow", "slow", FIVE_MINUTES, max_instances=3)
    async with h:
        await h.manage()
        await h.advance(minutes=5)

        assert await h.manage() == []
        assert (await h.manifest("slow")).next_due_at == at(10, 10)


# what an entry says


async def test_an_entry_has_train_and_input_of_its_manifest_and_priority_of_its_group(url: str) -> None:
    h = ManagerHarness(url, TEN)
    group = Group("etl", priority=12)
    limit = timedelta(seconds=90)
    h.schedule(h.job, "sync", "users", FIVE_MINUTES, group=group, priority=3, timeout=limit)
    async with h:
        await h.manage()

        entry = h.entry()
        assert (entry.train, entry.input, entry.manifest, entry.group) == ("job", "users", "sync", "etl")
        assert (entry.priority, entry.origin, entry.scheduled_at) == (12, Origin.SCHEDULE, None)
        assert h.ran == []


async def test_a_dependent_goes_before_others_of_its_group(url: str) -> None:
    h = ManagerHarness(url, TEN)
    root = h.schedule(h.job, "root", "root", FIVE_MINUTES)
    for priority in (0, 10, 20):
        root.include(h.job, f"{priority}", "child", group=Group(f"group-{priority}", priority=priority))
    async with h:
        await h.manage()
        await run_queued(h)
        await h.manage()

        assert {entry.manifest: entry.priority for entry in h.queued()} == {"0": 16, "10": 26, "20": 31}


# what one cycle leaves behind


async def test_an_idle_cycle_writes_no_record(url: str) -> None:
    async with build_harness(url, "sync") as h:
        await h.run_until_idle()
        before = h.count("metadata")

        for _ in range(3):
            await h.manage()
            await h.advance(minutes=1)

        assert h.count("metadata") == before


async def test_a_cycle_that_did_something_leaves_one_record(url: str) -> None:
    async with build_harness(url, "a", "b") as h:
        await h.manage()

        (record,) = await h.app.executions.list(train=MANAGER)
        assert (record.state, record.started_at, record.ended_at) == (State.COMPLETED, TEN, TEN)
        assert h.count("metadata") == 1


async def test_a_cycle_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the last step failed")

    async with build_harness(url, "sync") as h:
        stale = h.insert_run(created_at=TEN - timedelta(hours=1), state="pending", submitter="remote")
        with monkeypatch.context() as patch:
            patch.setattr(manifest_manager, "create_entries", broken)
            with pytest.raises(RuntimeError, match="the last step failed"):
                await h.manage()

        assert (await h.app.executions.get(stale)).state == State.PENDING
        assert await h.manage() == ["sync"]


# runs that need attention


async def test_a_pending_run_that_does_not_start_in_time_fails(url: str) -> None:
    async with build_harness(url) as h:
        run = h.insert_run(state="pending", submitter="remote")
        done = h.insert_run(state="completed", ended_at=TEN)

        h.now = at(10, 19, 59)
        assert (await h.cycle("manifest_manager")).reaped == []
        h.now = at(10, 20)
        assert (await h.cycle("manifest_manager")).reaped == []
        h.now = at(10, 20, 1)
        assert (await h.cycle("manifest_manager")).reaped == [run]

        record = await h.app.executions.get(run)
        assert (record.state, record.failure_exception) == (State.FAILED, "StalePendingTimeout")
        assert (record.failure_junction, record.ended_at) == ("reap_stale_pending_metadata", h.now)
        assert (await h.app.executions.get(done)).state == State.COMPLETED


async def test_a_run_that_waits_for_our_own_workers_is_not_stale(url: str) -> None:
    async with build_harness(url) as h:
        h.insert_run(state="pending", submitter="local")

        await h.advance(days=3)

        assert (await h.cycle("manifest_manager")).reaped == []


async def test_a_run_that_no_worker_holds_fails_after_a_long_time(url: str) -> None:
    async with build_harness(url, default_job_timeout=timedelta(days=1)) as h:
        run = h.insert_run(worker_id=None)

        h.now = at(11)
        assert (await h.cycle("manifest_manager")).reaped == []
        h.now = at(11, 0, 1)
        assert (await h.cycle("manifest_manager")).reaped == [run]

        record = await h.app.executions.get(run)
        assert (record.state, record.failure_exception) == (State.FAILED, "StaleInProgressTimeout")
        assert record.failure_junction == "reap_stale_in_progress_metadata"


async def test_a_run_of_a_silent_worker_fails_as_soon_as_the_silence_is_long_enough(url: str) -> None:
    async with build_harness(url) as h:
        silent = h.insert_worker(heartbeat_at=h.now)
        run = h.insert_run(worker_id=silent)

        await h.advance(seconds=20)
        assert (await h.cycle("manifest_manager")).reaped == []
        await h.advance(seconds=1)
        assert (await h.cycle("manifest_manager")).reaped == [run]

        record = await h.app.executions.get(run)
        assert (record.state, record.failure_exception) == (State.FAILED, "WorkerLost")


async def test_a_live_workers_run_is_never_stale(url: str) -> None:
    async with build_harness(url) as h:
        later = TEN + timedelta(days=3)
        h.insert_run(worker_id=h.insert_worker(heartbeat_at=later - timedelta(seconds=20)))

        h.now = later

        assert (await h.cycle("manifest_manager")).reaped == []


async def test_a_reaped_run_counts_towards_the_dead_letter_in_the_same_cycle(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=1)
    async with h:
        h.insert_run("sync")

        h.now = at(11, 0, 1)
        managed = await h.cycle("manifest_manager")

        assert (len(managed.reaped), len(managed.dead_letters), managed.queued) == (1, 1, [])


async def test_a_reaped_run_is_retried_in_the_same_cycle(url: str) -> None:
    async with build_harness(url, "sync") as h:
        h.insert_run("sync", state="pending", submitter="remote")

        h.now = at(10, 20, 1)

        assert await h.manage() == ["sync"]
        assert h.entry().scheduled_at == h.now + timedelta(minutes=5)


@pytest.mark.parametrize("limit", [None, timedelta(seconds=60)])
async def test_a_run_that_exceeds_its_timeout_is_requested_to_cancel(
    url: str, limit: timedelta | None
) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, timeout=limit)
    seen: list[list[int]] = []
    most = limit or timedelta(minutes=20)

    async def meanwhile() -> None:
        for moment in (TEN + most, TEN + most + timedelta(seconds=1), TEN + most + timedelta(seconds=2)):
            h.now = moment
            seen.append((await h.cycle("manifest_manager")).timed_out)

    h.during["sync"] = meanwhile
    async with h:
        await h.run_until_idle()

        (run,) = await h.app.executions.list(train="job")
        assert seen == [[], [run.id]]
        assert run.cancel_requested
        assert run.state is State.CANCELLED


async def test_a_run_without_a_manifest_is_requested_to_cancel_at_its_timeout(url: str) -> None:
    async with build_harness(url) as h:
        patient = h.insert_run(timeout_seconds=7200.0)
        hasty = h.insert_run(timeout_seconds=60.0)
        usual = h.insert_run()

        h.now = at(10, 1, 1)
        assert (await h.cycle("manifest_manager")).timed_out == [hasty]
        h.now = at(10, 20, 1)
        assert (await h.cycle("manifest_manager")).timed_out == [usual]

        assert not (await h.app.executions.get(patient)).cancel_requested


async def test_time_spent_waiting_does_not_count_towards_the_timeout(url: str) -> None:
    async with build_harness(url) as h:
        h.insert_run(created_at=TEN - timedelta(hours=2), started_at=TEN)
        h.insert_run(state="pending", created_at=TEN - timedelta(hours=2))

        h.now = at(10, 20)

        assert (await h.cycle("manifest_manager")).timed_out == []


async def test_cancelling_a_manifest_flags_its_runs_in_progress_only(url: str) -> None:
    async with build_harness(url, "sync", "other") as h:
        running = [h.insert_run("sync"), h.insert_run("sync")]
        others = [h.insert_run("sync", state="pending"), h.insert_run("other")]

        assert await h.app.manifests.cancel("sync") == 2

        flags = [(await h.app.executions.get(run)).cancel_requested for run in (*running, *others)]
        assert flags == [True, True, False, False]


# one cannot hold up the others


async def test_an_entry_that_is_refused_does_not_keep_out_the_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = build_harness(url, "a", "taken", "z")
    read = manifest_due.load_states

    def read_then_raced(connection: Connection, *args: Any, **options: Any) -> Any:
        standings = read(connection, *args, **options)
        taken = next(one for one in standings if one.external_id == "taken")
        work_queue.add(connection, [scheduled(taken.id)], now=TEN)
        return standings

    async with h:
        with monkeypatch.context() as patch:
            patch.setattr(manifest_due, "load_states", read_then_raced)
            assert await h.manage() == ["a", "z"]

        assert len(h.queued("taken")) == 1
        assert (await h.manifest("taken")).next_due_at == at(10, 5), "what refused it may be over by then"
        assert await run_queued(h) == 3
        await h.advance(minutes=5)
        assert await h.manage() == ["a", "taken", "z"]


def scheduled(manifest_id: int) -> NewEntry:
    return NewEntry(
        external_id=new_external_id(),
        train="job",
        origin=Origin.SCHEDULE,
        input='"taken"',
        manifest_id=manifest_id,
    )


BROKEN: list[dict[str, Any]] = [
    {"schedule_type": "cron", "cron_expression": "every now and then"},
    {"schedule_type": "cron", "cron_expression": "0 0 31 2 *"},
    {"schedule_type": "cron", "cron_expression": "0 3 * * *", "time_zone": "Mars/Olympus"},
    {"exclusions": '[{"kind": "days_of_week", "days": [0]}]', "time_zone": "Mars/Olympus"},
    {"exclusions": '[{"kind": "full_moon"}]'},
    {"exclusions": '{"not": "a list"}'},
    {"retry": '{"delay": "soon"}', "failure_count": 1},
    {"schedule_type": "dependent"},
    {"interval_seconds": 2_147_483_647, "last_successful_run": TEN},
]


async def test_broken_rows_stop_neither_a_cycle_nor_anyone_else(url: str) -> None:
    bad = [f"bad-{number}" for number in range(len(BROKEN))]
    async with build_harness(url, *bad, "good") as h:
        for external_id, broken in zip(bad, BROKEN, strict=True):
            h.change_manifest(external_id, **broken)

        await h.run_until_idle()
        assert "good" in h.ran

        for external_id in bad:
            await h.app.manifests.trigger(external_id)
            h.errors[external_id] = RuntimeError("broken too")
        await run_queued(h)
        assert set(bad) <= set(h.ran), "they can still be started by hand, and end"
        assert (await h.manifest("bad-0")).failure_count == 1
        await h.advance(minutes=5)
        assert "good" in await h.manage()


async def test_a_broken_row_is_not_evaluated_in_every_cycle(url: str) -> None:
    async with build_harness(url, "bad") as h:
        h.change_manifest("bad", schedule_type="cron", cron_expression="every now and then")

        await h.manage()

        assert (await h.manifest("bad")).next_due_at == at(10, 5)


UNREADABLE: list[dict[str, Any]] = [
    {"schedule_type": "cron", "cron_expression": "0 3 * * *", "time_zone": "Mars/Olympus"},
    {"exclusions": '[{"kind": "full_moon"}]'},
]


@pytest.mark.parametrize("columns", UNREADABLE, ids=["zone", "exclusion"])
async def test_a_manifest_that_one_server_cannot_evaluate_is_queued_by_another(
    url: str, columns: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with build_harness(url, "sync") as h:
        h.change_manifest("sync", **columns)
        assert await h.manage() == []
        await h.advance(minutes=5)
        assert await h.manage() == []
        warnings = [
            line for line in caplog.messages if "manifest 'sync': this server cannot evaluate" in line
        ]

        h.change_manifest("sync", time_zone="UTC", exclusions=None)  # as if a server read it that can
        await h.advance(minutes=5)

        assert await h.manage() == ["sync"]
        assert len(warnings) == 1
        assert h.app.context.counters.deferred_manifests == 2


@pytest.mark.parametrize("columns", UNREADABLE, ids=["zone", "exclusion"])
async def test_a_run_that_ends_where_its_schedule_is_unreadable_does_not_end_the_schedule(
    url: str, columns: dict[str, Any]
) -> None:
    async with build_harness(url, "sync") as h:
        await h.manage()
        h.change_manifest("sync", **columns)
        await run_queued(h)

        assert (await h.manifest("sync")).next_due_at == TEN
        await h.manage()
        [reason] = await h.app.why("sync")
        assert (reason.code, reason.until) == ("broken", at(10, 5))
        assert "this server cannot evaluate its schedule" in reason.text


async def test_an_overlapping_manifest_with_an_unreadable_schedule_is_evaluated_at_its_interval(
    url: str,
) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "slow", "slow", FIVE_MINUTES, max_instances=2)
    async with h:
        await h.manage()
        h.change_manifest("slow", **UNREADABLE[0])
        await h.advance(minutes=5)

        await h.manage()

        assert (await h.manifest("slow")).next_due_at == at(10, 10)


# fair shares


def groups(url: str, limit: int | None, /, **due: tuple[int, int]) -> ManagerHarness:
    """Groups by name: (priority, how many are due)."""
    h = ManagerHarness(url, TEN, max_work_queue_entries_per_cycle=limit)
    for name, (priority, number) in due.items():
        h.schedule_many({f"{one}": name for one in range(number)}, name, Group(name, priority=priority))
    return h


async def served(h: ManagerHarness) -> dict[str | None, int]:
    managed = await h.cycle("manifest_manager")
    wanted = set(managed.queued)
    return dict(Counter(entry.group for entry in h.queued() if entry.id in wanted))


async def test_a_flood_in_one_group_does_not_shut_out_another(url: str) -> None:
    async with groups(url, 10, L=(0, 30), S=(0, 3)) as h:
        assert await served(h) == {"S": 3, "L": 7}

        assert [await served(h) for _ in range(4)] == [{"L": 10}, {"L": 10}, {"L": 3}, {}]


async def test_capacity_left_after_equal_shares_goes_to_the_highest_priority(url: str) -> None:
    async with groups(url, 10, C=(0, 8), B=(10, 8), A=(20, 8)) as h:
        assert await served(h) == {"A": 4, "B": 3, "C": 3}


async def test_a_small_group_is_queued_completely_beside_a_large_one(url: str) -> None:
    async with groups(url, 200, cache=(0, 5000), delta=(0, 15)) as h:
        assert await served(h) == {"delta": 15, "cache": 185}


async def test_without_a_limit_everything_due_is_queued(url: str) -> None:
    async with groups(url, None, A=(0, 700), B=(0, 9)) as h:
        assert await served(h) == {"A": 700, "B": 9}


async def test_with_fewer_places_than_groups_each_gets_its_turn(url: str) -> None:
    async with groups(url, 2, A=(20, 5), B=(10, 5), C=(0, 5)) as h:
        assert [await served(h) for _ in range(3)] == [{"A": 1, "B": 1}, {"A": 1, "C": 1}, {"B": 1, "C": 1}]


async def test_a_cycle_that_leaves_due_manifests_requests_another(url: str) -> None:
    async with groups(url, 2, A=(0, 3)) as h:
        assert (await h.cycle("manifest_manager")).run_again
        assert not (await h.cycle("manifest_manager")).run_again


# cost


async def test_a_cycle_reads_what_is_due_by_index(postgres_url: str) -> None:
    h = ManagerHarness(postgres_url, TEN)
    h.schedule_many({f"{number}": "x" for number in range(5_000)})
    async with h:
        due = h.store.run(_mostly_resting)
        seen: list[tuple[str, Any]] = []
        h.store.run(_recorded, seen, due)

        plans = [h.store.read(_explained, statement, given) for statement, given in seen]

    waiting, *looked = plans
    assert "manifest_due_idx" in waiting
    assert "Seq Scan on manifest " not in waiting
    assert not [plan for plan in looked if "Seq Scan on metadata" in plan or "Seq Scan on work_queue" in plan]


HISTORY = """
UPDATE trax.manifest SET next_due_at = CASE
    WHEN id % 1000 = 0 THEN '2027-03-01Z'::timestamptz WHEN id % 2 = 0 THEN '2027-04-01Z' END;

INSERT INTO trax.metadata (external_id, train, state, manifest_id, created_at, started_at, ended_at)
SELECT md5(random()::text), 'job', 'completed', id, now(), now(), now()
FROM trax.manifest, generate_series(1, 4);

INSERT INTO trax.work_queue
    (external_id, train, status, origin, ready, manifest_id, created_at, dispatched_at)
SELECT md5(random()::text), 'job', 'dispatched', 'schedule', true, id, now(), now()
FROM trax.manifest, generate_series(1, 4);

ANALYZE trax.manifest, trax.metadata, trax.work_queue, trax.dead_letter, trax.manifest_group;
"""


def _mostly_resting(connection: Connection) -> list[int]:
    """Five of five thousand are due; each has a history of a few runs and entries."""
    for statement in HISTORY.split(";\n"):
        if statement.strip():
            connection.execute(text(statement))
    query = "SELECT id FROM trax.manifest WHERE next_due_at <= '2027-03-01Z'"
    return list(connection.execute(text(query)).scalars())


def _recorded(connection: Connection, seen: list[tuple[str, Any]], due: list[int]) -> None:
    def note(_: Any, __: Any, statement: str, given: Any, *___: Any) -> None:
        seen.append((statement, given))

    event.listen(connection, "before_cursor_execute", note)
    try:
        (waiting,) = run_together(connection, (manifest_due.select_due("postgresql"), {"now": TEN}))
        assert len(waiting) == len(due) == 5
        standings = manifest_due.load_states(connection, due, default_threshold=timedelta(0))
    finally:
        event.remove(connection, "before_cursor_execute", note)
    assert len(standings) == 5


def _explained(connection: Connection, statement: str, given: Any) -> str:
    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", given)
    return "\n".join(row[0] for row in rows)
