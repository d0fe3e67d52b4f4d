"""Requeueing, acknowledging, listing and deleting dead letters."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, select
from tests.support.manager_harness import ManagerHarness
from tests.support.running import run_queued

from trax import Group, NotFound, Trax, every
from trax.records import DeadLetterStatus, Origin, QueueStatus, State
from trax.store.schema import tables

if TYPE_CHECKING:
    from trax.store import Connection

TEN = datetime(2027, 3, 1, 10, tzinfo=UTC)
FIVE_MINUTES = every(minutes=5)


def build_harness(url: str, *external_ids: str, **settings: Any) -> ManagerHarness:
    """Each of these gives up after its first failure."""
    h = ManagerHarness(url, TEN, **settings)
    for external_id in external_ids or ("sync",):
        group = Group(external_id, priority=7)
        h.schedule(h.job, external_id, external_id, FIVE_MINUTES, max_retries=1, priority=4, group=group)
    return h


async def awaiting(h: ManagerHarness, *external_ids: str) -> list[int]:
    """Have each of these give up; their letters' ids."""
    for external_id in external_ids:
        h.errors[external_id] = RuntimeError("no luck")
    await h.run_until_idle()
    h.errors.clear()
    letters = {letter.manifest: letter.id for letter in await h.letters("awaiting_intervention")}
    return [letters[external_id] for external_id in external_ids]


def alone(h: ManagerHarness, **columns: Any) -> int:
    """A dead letter of a job without a manifest."""
    row: dict[str, Any] = {
        "train": "job",
        "input": '"alone"',
        "status": DeadLetterStatus.AWAITING_INTERVENTION,
        "reason": "failed",
        "retry_count": 3,
        "dead_lettered_at": TEN,
    }

    def inserted(connection: Connection) -> int:
        letter = tables(connection).dead_letter
        statement = insert(letter).values(**row | columns).returning(letter.c.id)
        return connection.execute(statement).scalar_one()

    return h.store.run(inserted)


async def test_a_letter_written_after_the_operators_clock_was_read_is_not_resolved_before_that(
    url: str,
) -> None:
    async with build_harness(url) as h:
        written_at = TEN + timedelta(milliseconds=3)
        late, usual = (
            alone(h, dead_lettered_at=written_at),
            alone(h, dead_lettered_at=TEN - timedelta(hours=1)),
        )

        assert await h.app.dead_letters.acknowledge([late, usual], "seen") == 2

        letters = [await h.app.dead_letters.get(letter_id) for letter_id in (late, usual)]
        assert [letter.resolved_at for letter in letters if letter] == [written_at, TEN]


# requeue


async def test_requeue_writes_an_entry_and_resolves_the_letter(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.advance(hours=1)

        assert await h.app.dead_letters.requeue([letter_id]) == 1

        entry = h.entry("sync")
        assert (entry.origin, entry.input, entry.priority) == (Origin.REQUEUE, "sync", 4)
        assert (entry.dead_letter_id, entry.scheduled_at) == (letter_id, None)
        letter = await h.app.dead_letters.get(letter_id)
        assert (letter.status, letter.resolved_at) == (DeadLetterStatus.RETRIED, h.now)
        assert (letter.note, letter.retry_metadata_id) == ("requeued", None)


async def test_a_requeued_letter_names_the_run_that_came_of_it(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.requeue([letter_id], note="the disk is larger now")

        await run_queued(h)

        letter = await h.app.dead_letters.get(letter_id)
        assert letter.note == "the disk is larger now"
        assert letter.retry_metadata_id is not None
        assert (await h.app.executions.get(letter.retry_metadata_id)).state == "completed"


async def test_after_a_successful_requeue_the_schedule_continues(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.requeue([letter_id])
        await h.run_until_idle()

        await h.advance(minutes=5)

        assert await h.manage() == ["sync"]


async def test_a_requeue_that_fails_again_makes_a_second_letter(url: str) -> None:
    async with build_harness(url) as h:
        (first,) = await awaiting(h, "sync")
        await h.app.dead_letters.requeue([first])
        h.errors["sync"] = RuntimeError("still no luck")

        await h.run_until_idle()

        statuses = [letter.status for letter in await h.letters()]
        assert statuses == [DeadLetterStatus.RETRIED, DeadLetterStatus.AWAITING_INTERVENTION]


async def test_a_second_letter_needs_as_many_failures_as_the_first(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.schedule(h.job, "sync", "sync", FIVE_MINUTES, max_retries=3)
    async with h:
        first = await h.dead_letter("sync")
        await h.app.dead_letters.requeue([first.id])

        await h.fails("sync", 2)
        await h.manage()
        assert len(await h.letters()) == 1
        await h.fails("sync")
        await h.manage()

        assert [letter.retry_count for letter in await h.letters()] == [3, 3]


@pytest.mark.parametrize("origin", ["schedule", "retry", "trigger"])
async def test_requeue_attaches_to_an_entry_that_is_queued_already(url: str, origin: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        entry_id = h.insert_entry("sync", origin=origin)

        assert await h.app.dead_letters.requeue([letter_id]) == 1

        entry = h.entry("sync")
        assert (entry.id, entry.dead_letter_id) == (entry_id, letter_id)
        await run_queued(h)
        assert (await h.app.dead_letters.get(letter_id)).retry_metadata_id is not None


@pytest.mark.parametrize("origin", ["schedule", "retry", "trigger"])
async def test_requeue_does_not_wait_behind_a_delayed_entry(url: str, origin: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        put_off = h.insert_entry("sync", origin=origin, ready=False, scheduled_at=h.now + timedelta(days=3))

        assert await h.app.dead_letters.requeue([letter_id]) == 1

        delayed, requeued = h.queued("sync")
        assert (delayed.id, delayed.dead_letter_id) == (put_off, None)
        assert (requeued.origin, requeued.dead_letter_id) == (Origin.REQUEUE, letter_id)
        await h.run_until_idle()
        assert h.ran == ["sync", "sync"]
        assert (await h.app.dead_letters.get(letter_id)).retry_metadata_id is not None


async def test_requeue_attaches_to_a_delayed_entry_whose_moment_has_come(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.manifests.trigger("sync", delay=timedelta(minutes=1))
        await h.advance(minutes=1)

        await h.app.dead_letters.requeue([letter_id])

        entry = h.entry("sync")
        assert (entry.origin, entry.dead_letter_id) == (Origin.TRIGGER, letter_id)


async def test_requeue_attaches_to_one_entry_of_several(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        first = h.insert_entry("sync", origin="trigger")
        h.insert_entry("sync", origin="schedule")

        await h.app.dead_letters.requeue([letter_id])

        attached = {entry.id: entry.dead_letter_id for entry in h.queued("sync")}
        assert len(attached) == 2
        assert [entry_id for entry_id, letter in attached.items() if letter] == [first]


async def test_entries_that_are_no_longer_queued_get_no_letter(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        h.insert_entry("sync", status=QueueStatus.CANCELLED)

        await h.app.dead_letters.requeue([letter_id])

        assert h.entry("sync").origin is Origin.REQUEUE


async def test_a_letter_without_a_manifest_is_requeued_with_its_own_values(url: str) -> None:
    async with build_harness(url) as h:
        group = await h.app.groups.get("sync")
        letter_id = alone(h, group_id=group.id, priority=9)

        assert await h.app.dead_letters.requeue([letter_id]) == 1

        entry = h.entry()
        assert (entry.train, entry.input, entry.manifest) == ("job", "alone", None)
        assert (entry.priority, entry.group, entry.dead_letter_id) == (9, "sync", letter_id)
        assert group_priorities(h) == [7]
        await run_queued(h)
        assert h.ran == ["alone"]


def group_priorities(h: ManagerHarness) -> list[int]:
    def asked(connection: Connection) -> list[int]:
        return list(connection.execute(select(tables(connection).work_queue.c.group_priority)).scalars())

    return h.store.read(asked)


async def test_a_disabled_manifest_can_be_requeued(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.manifests.disable("sync")

        await h.app.dead_letters.requeue([letter_id])
        await h.run_until_idle()

        assert h.ran == ["sync", "sync"]


async def test_a_dead_letter_does_not_block_a_trigger(url: str) -> None:
    async with build_harness(url) as h:
        await awaiting(h, "sync")

        await h.app.manifests.trigger("sync")
        await h.run_until_idle()

        assert h.ran == ["sync", "sync"]
        assert len(await h.letters("awaiting_intervention")) == 1


# acknowledge


async def test_acknowledge_resolves_with_a_note_and_queues_nothing_itself(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")

        assert await h.app.dead_letters.acknowledge([letter_id], "known, harmless") == 1

        letter = await h.app.dead_letters.get(letter_id)
        assert (letter.status, letter.note) == (DeadLetterStatus.ACKNOWLEDGED, "known, harmless")
        assert letter.resolved_at == h.now
        assert h.queued() == []


async def test_an_acknowledged_once_manifest_does_not_run_again(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=timedelta(0), max_retries=1)
    async with h:
        letter = await h.dead_letter("migrate")

        await h.app.dead_letters.acknowledge([letter.id], "done by hand")
        await h.run_until_idle()
        await h.advance(days=1)
        await h.seed()
        await h.run_until_idle()

        assert h.ran == ["migrate"]
        manifest = await h.manifest("migrate")
        assert (manifest.enabled, manifest.failure_count, manifest.next_due_at) == (False, 0, None)


async def test_a_requeued_once_manifest_runs_again(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=timedelta(0), max_retries=1)
    async with h:
        letter = await h.dead_letter("migrate")

        await h.app.dead_letters.requeue([letter.id])
        await h.run_until_idle()

        assert h.ran == ["migrate", "migrate"]
        assert not (await h.manifest("migrate")).enabled


async def test_acknowledging_an_extra_run_keeps_the_moment_of_a_once_manifest(url: str) -> None:
    h = ManagerHarness(url, TEN)
    h.app.schedule_once(h.job, "migrate", "migrate", delay=timedelta(hours=1), max_retries=1)
    async with h:
        h.errors["migrate"] = RuntimeError("no luck")
        await h.app.manifests.trigger("migrate")
        await h.run_until_idle()
        h.errors.clear()

        assert await h.app.dead_letters.acknowledge_all("too early") == 1
        await h.run_until_idle()
        assert h.ran == ["migrate"]
        await h.advance(hours=1)
        await h.run_until_idle()

        assert h.ran == ["migrate", "migrate"]


async def test_after_an_acknowledgement_other_schedules_continue(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")

        await h.app.dead_letters.acknowledge([letter_id], "seen")

        assert await h.manage() == ["sync"]


# many, none, twice


@pytest.mark.parametrize("verb", ["requeue", "acknowledge"])
async def test_resolved_and_unknown_letters_are_left_unchanged(url: str, verb: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.acknowledge([letter_id], "first")
        await h.advance(minutes=1)
        before = await h.letters()

        if verb == "requeue":
            count = await h.app.dead_letters.requeue([letter_id, 999])
        else:
            count = await h.app.dead_letters.acknowledge([letter_id, 999], "second")

        assert count == 0
        assert (await h.letters(), h.queued()) == (before, [])


async def test_only_awaiting_letters_are_resolved(url: str) -> None:
    async with build_harness(url, "a", "b", "c") as h:
        ids = await awaiting(h, "a", "b", "c")
        await h.app.dead_letters.acknowledge(ids[:1], "first")

        assert await h.app.dead_letters.requeue([*ids, *ids]) == 2

        assert sorted(entry.manifest or "" for entry in h.queued()) == ["b", "c"]


async def test_acknowledge_all_leaves_out_what_is_resolved(url: str) -> None:
    async with build_harness(url, "a", "b", "c", "d", "e") as h:
        ids = await awaiting(h, "a", "b", "c", "d", "e")
        await h.app.dead_letters.acknowledge(ids[:1], "one")
        await h.app.dead_letters.requeue(ids[1:2])

        assert await h.app.dead_letters.acknowledge_all("a power cut") == 3

        notes = [letter.note for letter in await h.letters()]
        assert sorted(note or "" for note in notes) == ["a power cut"] * 3 + ["one", "requeued"]


async def test_requeue_all_queues_each_once(url: str) -> None:
    async with build_harness(url, "a", "b") as h:
        await awaiting(h, "a", "b")
        alone(h)

        assert await h.app.dead_letters.requeue_all() == 3
        assert await h.app.dead_letters.requeue_all() == 0

        assert len(h.queued()) == 3


async def test_resolving_no_letters_returns_zero(url: str) -> None:
    async with build_harness(url) as h:
        assert await h.app.dead_letters.requeue([]) == 0
        assert await h.app.dead_letters.acknowledge([], "none") == 0
        assert await h.app.dead_letters.requeue_all() == 0
        assert await h.app.dead_letters.acknowledge_all("none") == 0


async def test_getting_an_unknown_letter_raises_not_found(url: str) -> None:
    async with build_harness(url) as h:
        with pytest.raises(NotFound, match="there is no dead letter 7"):
            await h.app.dead_letters.get(7)


async def test_letters_are_listed_newest_first_by_status_and_manifest(url: str) -> None:
    async with build_harness(url, "a", "b") as h:
        a, b = await awaiting(h, "a", "b")
        await h.app.dead_letters.acknowledge([a], "seen")

        listed = await h.app.dead_letters.list()
        assert [letter.id for letter in listed] == sorted([a, b], reverse=True)
        assert [letter.id for letter in await h.app.dead_letters.list(status="acknowledged")] == [a]
        assert [letter.id for letter in await h.app.dead_letters.list(manifest="b")] == [b]
        assert [letter.id for letter in await h.app.dead_letters.list(before=max(a, b))] == [min(a, b)]


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("rival", ["requeue", "acknowledge"])
async def test_two_concurrent_operators_resolve_a_letter_once(url: str, rival: str) -> None:
    """Two apps on one database, each with its own connections and threads."""
    async with build_harness(url, "a", "b", "c") as h:
        ids = await awaiting(h, "a", "b", "c")
        both = Barrier(2)

        def operate(verb: str, order: list[int]) -> int:
            other = Trax(url)
            other.context.store.open_blocking()
            both.wait(30)
            letters = other.dead_letters
            asked = letters.requeue(order) if verb == "requeue" else letters.acknowledge(order, "seen")
            try:
                return asyncio.run(asked)
            finally:
                other.close()

        counts = await asyncio.gather(
            asyncio.to_thread(operate, "requeue", ids), asyncio.to_thread(operate, rival, ids[::-1])
        )

        assert sum(counts) == 3
        statuses = [letter.status for letter in await h.letters()]
        assert len(h.queued()) == statuses.count(DeadLetterStatus.RETRIED)
        assert DeadLetterStatus.AWAITING_INTERVENTION not in statuses


# cleanup


async def test_cleanup_forgets_what_was_resolved_long_ago(url: str) -> None:
    async with build_harness(url, "old", "newer", "awaiting") as h:
        old, newer, waiting = await awaiting(h, "old", "newer", "awaiting")
        await h.app.dead_letters.requeue([old])
        await h.advance(days=2)
        await h.app.dead_letters.acknowledge([newer], "seen")
        await h.advance(days=29)

        assert await h.cycle("dead_letter_cleanup") == 1

        assert sorted(letter.id for letter in await h.letters()) == sorted([newer, waiting])


async def test_a_cleanup_leaves_a_record_if_it_deleted_something(url: str) -> None:
    async with build_harness(url) as h:
        letter = await h.dead_letter("sync")
        await h.app.dead_letters.acknowledge([letter.id], "seen")
        assert await h.cycle("dead_letter_cleanup") == 0
        assert await h.app.executions.list(train="trax.dead_letter_cleanup") == []

        await h.advance(days=31)
        assert await h.cycle("dead_letter_cleanup") == 1

        (run,) = await h.app.executions.list(train="trax.dead_letter_cleanup")
        assert (run.state, run.ended_at) == (State.COMPLETED, h.now)


async def test_cleanup_keeps_the_entry_of_a_letter_it_forgets(url: str) -> None:
    async with build_harness(url) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.requeue([letter_id])
        await h.advance(days=31)

        assert await h.cycle("dead_letter_cleanup") == 1

        assert h.entry("sync").dead_letter_id is None
        assert await run_queued(h) == 1


async def test_cleanup_can_be_switched_off_and_its_retention_set(url: str) -> None:
    async with build_harness(url, auto_purge_dead_letters=False) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.acknowledge([letter_id], "seen")
        await h.advance(days=400)

        assert await h.cycle("dead_letter_cleanup") == 0


async def test_retention_is_a_setting(url: str) -> None:
    async with build_harness(url, dead_letter_retention_period=timedelta(days=1)) as h:
        (letter_id,) = await awaiting(h, "sync")
        await h.app.dead_letters.acknowledge([letter_id], "seen")

        await h.advance(days=1)
        assert await h.cycle("dead_letter_cleanup") == 0
        await h.advance(seconds=1)
        assert await h.cycle("dead_letter_cleanup") == 1
