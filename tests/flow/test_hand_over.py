from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import listing

from trax import Refused, Submission, Trax, every
from trax.errors import StoreUnavailable
from trax.records import QueueStatus, State
from trax.remote.hand_over import HandOver
from trax.store import inspect
from trax.store.queue import work_queue
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from trax import Metadata, WorkQueueEntry


class Remote:
    """Takes what it is given, except what it is told to refuse, and remembers all of it."""

    name = "remote"
    batch_size = 1

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.refused: set[int] = set()
        self.error: Exception | None = None

    async def submit(self, batch: Sequence[Submission]) -> list[Any]:
        self.calls.append([int(one.input or "") for one in batch])
        if self.error is not None:
            raise self.error
        return [Refused("no room") if int(one.input or "") in self.refused else None for one in batch]

    @property
    def seen(self) -> list[int]:
        return [number for call in self.calls for number in call]


class Yard:
    """An app whose one train is executed elsewhere, turn by turn."""

    def __init__(self, app: Trax, remote: Remote) -> None:
        self.app = app
        self.remote = remote
        self.h = Harness(app)

        @app.train
        async def work(number: int) -> int:
            return number

        self.work = work
        app.route(work, to=remote)

    async def queue(self, *numbers: int) -> Sequence[WorkQueueEntry]:
        return await self.app.queue_many(self.work, numbers)

    async def cycle(self) -> None:
        """One cycle of the gate and of the hand-over, after any pause."""
        await self.h.advance(minutes=5)
        await self.h.cycle("job_dispatcher")
        await self.h.cycle("hand_over")

    async def entry(self, entry_id: int) -> WorkQueueEntry:
        store = await self.app.context.store.open()
        entry = await store.ask(work_queue.get, entry_id)
        assert entry
        return entry

    async def records(self) -> list[Metadata]:
        return [one for one in reversed(await self.app.executions.list()) if one.train == "work"]


async def _yard(url: str, **settings: Any) -> AsyncGenerator[Yard]:
    yard = Yard(Trax(url, max_active_jobs=None, **settings), Remote())
    async with yard.h:
        yield yard


@pytest.fixture
async def yard(url: str) -> AsyncGenerator[Yard]:
    async for one in _yard(url):
        yield one


@pytest.fixture
async def impatient(url: str) -> AsyncGenerator[Yard]:
    """A yard where nothing is handed over twice."""
    async for one in _yard(url, max_dispatch_attempts=0):
        yield one


async def test_what_is_let_through_is_handed_over_once_and_stays_pending(yard: Yard) -> None:
    await yard.queue(1, 2)

    await yard.cycle()
    await yard.cycle()

    assert yard.remote.calls == [[1], [2]]
    assert [(run.state, run.submitter) for run in await yard.records()] == [(State.PENDING, "remote")] * 2
    assert await yard.h.work() == 0


async def test_the_urgent_goes_first_and_the_older_of_equals(yard: Yard) -> None:
    await yard.queue(1, 2)
    await yard.app.queue(yard.work, 3, priority=9)

    await yard.cycle()

    assert yard.remote.seen == [3, 1, 2]


async def test_a_submitter_gets_as_many_in_a_call_as_it_wants(yard: Yard) -> None:
    yard.remote.batch_size = 2
    await yard.queue(1, 2, 3)

    await yard.cycle()

    assert yard.remote.calls == [[1, 2], [3]]


async def test_a_failed_hand_over_puts_the_entry_back_and_the_next_try_is_a_new_run(yard: Yard) -> None:
    yard.remote.error = OSError("no route")
    (queued,) = await yard.queue(1)

    await yard.cycle()

    (run,) = await yard.records()
    entry = await yard.entry(queued.id)
    assert (run.state, run.failure_junction) == (State.FAILED, "dispatch_jobs")
    assert (run.failure_exception, run.failure_reason) == ("OSError", "no route")
    assert run.ended_at == yard.h.now
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.QUEUED, 1)
    assert (entry.metadata_id, entry.dispatched_at) == (None, None)
    assert entry.scheduled_at == yard.h.now + timedelta(seconds=4)

    yard.remote.error = None
    await yard.cycle()

    assert [run.state for run in await yard.records()] == [State.FAILED, State.PENDING]
    assert (await yard.entry(queued.id)).status == QueueStatus.DISPATCHED


async def test_one_refusal_among_ten_is_of_one(yard: Yard) -> None:
    yard.remote.batch_size = 5
    yard.remote.refused = {4}
    await yard.queue(*range(10))

    await yard.cycle()

    states = [run.state for run in await yard.records()]
    assert [number for number, state in enumerate(states) if state == State.FAILED] == [4]
    assert states.count(State.PENDING) == 9


async def test_a_job_that_nobody_takes_is_given_up_with_its_input(yard: Yard) -> None:
    yard.remote.error = OSError("no route")
    (queued,) = await yard.queue(7)

    for _ in range(6):
        await yard.cycle()

    entry = await yard.entry(queued.id)
    (letter,) = await yard.app.dead_letters.list()
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.DISPATCHED, 5)
    assert [run.state for run in await yard.records()] == [State.FAILED] * 5
    assert (letter.train, letter.input) == ("work", 7)
    assert letter.reason == "its hand-over failed 5 times; the last error was OSError: no route; it never ran"

    yard.remote.error = None
    assert await yard.app.dead_letters.requeue([letter.id]) == 1
    await yard.cycle()

    assert (await yard.records())[-1].state == State.PENDING


async def test_a_manifest_that_nobody_takes_gets_a_dead_letter_and_no_failures(yard: Yard) -> None:
    yard.remote.error = OSError("no route")
    yard.app.schedule(yard.work, "hourly", 7, every(hours=1))
    await yard.h.seed()

    for _ in range(7):
        await yard.h.cycle("manifest_manager")
        await yard.cycle()

    manifest = await yard.app.manifests.get("hourly")
    (letter,) = await yard.app.dead_letters.list()
    assert (manifest.failure_count, manifest.next_due_at) == (0, None)
    assert (letter.manifest, letter.retry_count) == ("hourly", 0)
    assert letter.reason == "its hand-over failed 5 times; the last error was OSError: no route; it never ran"
    assert len(await yard.records()) == 5

    yard.remote.error = None
    assert await yard.app.dead_letters.requeue([letter.id]) == 1
    await yard.h.cycle("manifest_manager")
    await yard.cycle()

    assert (await yard.records())[-1].state == State.PENDING
    assert len(await yard.app.dead_letters.list()) == 1


async def test_with_no_attempts_allowed_the_first_failure_is_the_last(impatient: Yard) -> None:
    impatient.remote.error = OSError("no route")
    (queued,) = await impatient.queue(1)

    await impatient.cycle()
    await impatient.cycle()

    entry = await impatient.entry(queued.id)
    (letter,) = await impatient.app.dead_letters.list()
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.DISPATCHED, 0)
    assert "its hand-over failed once" in letter.reason
    assert len(await impatient.records()) == 1


async def test_an_entry_that_goes_back_has_the_priority_its_group_has_by_then(yard: Yard) -> None:
    entry = await yard.app.queue(yard.work, 1, group="mail")
    await yard.h.cycle("job_dispatcher")
    await yard.app.groups.update("mail", priority=20)

    yard.remote.error = OSError("no route")
    await yard.h.cycle("hand_over")

    line = await (await yard.app.context.store.open()).ask(inspect.load_position, entry.id)
    assert line is not None
    assert line.group_priority == 20


async def test_an_extra_run_that_nobody_takes_does_not_hold_up_the_schedule(yard: Yard) -> None:
    """The manager looks while the run waits to be handed over, and leaves the schedule until its end."""
    yard.app.schedule(yard.work, "hourly", 7, every(hours=1), start="next_occurrence")
    await yard.h.seed()
    await yard.app.manifests.trigger("hourly")
    await yard.h.cycle("job_dispatcher")
    await yard.h.advance(hours=1)
    assert (await yard.h.cycle("manifest_manager")).queued == []

    yard.remote.error = OSError("no route")
    await yard.h.cycle("hand_over")

    assert len((await yard.h.cycle("manifest_manager")).queued) == 1


async def test_an_entry_whose_place_is_taken_meanwhile_is_cancelled(yard: Yard) -> None:
    yard.app.schedule(yard.work, "overlapping", 1, every(minutes=1), max_instances=3)
    await yard.h.seed()
    await yard.h.cycle("manifest_manager")
    await yard.h.cycle("job_dispatcher")
    await yard.h.advance(minutes=1)
    await yard.h.cycle("manifest_manager")

    yard.remote.error = OSError("no route")
    await yard.h.cycle("hand_over")

    newer, older = await (await yard.app.context.store.open()).ask(listing.entries)
    assert (newer.status, older.status) == (QueueStatus.QUEUED, QueueStatus.CANCELLED)
    assert [run.state for run in await yard.records()] == [State.FAILED]


async def test_an_input_that_no_longer_fits_counts_attempts_and_stops_nobody(url: str) -> None:
    async for yard in _yard(url, max_dispatch_attempts=2):
        (bad, _) = await yard.queue(1, 2)
        store = await yard.app.context.store.open()
        await store.call(_spoil, bad.id)

        for _ in range(3):
            await yard.cycle()

        (letter,) = await yard.app.dead_letters.list()
        assert yard.remote.seen == [2]
        assert (await yard.entry(bad.id)).dispatch_attempts == 2
        assert "train 'work': invalid input" in letter.reason


def _spoil(connection: Any, entry_id: int) -> None:
    queue = work_queue.tables(connection).work_queue
    connection.execute(queue.update().where(queue.c.id == entry_id).values(input='"seven"'))


async def test_no_two_servers_hand_over_the_same_run(yard: Yard) -> None:
    await yard.queue(*range(20))
    await yard.h.cycle("job_dispatcher")
    store = await yard.app.context.store.open()
    servers = [HandOver(yard.app.context, store, yard.remote) for _ in range(4)]

    while any(await asyncio.gather(*(server.turn() for server in servers))):
        for server in servers:
            await server.drain()

    assert sorted(yard.remote.seen) == list(range(20))


async def test_what_a_server_left_behind_is_handed_over_by_another(yard: Yard) -> None:
    """The first server takes the run, calls, and dies before it can write down the answer."""
    begun = asyncio.Event()

    class Deaf(Remote):
        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            await super().submit(batch)
            begun.set()
            await asyncio.Event().wait()
            return []

    await yard.queue(1)
    await yard.h.cycle("job_dispatcher")
    store = await yard.app.context.store.open()
    deaf = Deaf()
    dying = HandOver(yard.app.context, store, deaf)
    await dying.turn()
    await begun.wait()
    await dying.drain(0)

    assert await yard.h.cycle("hand_over") == 0  # it may still be at it
    await yard.h.advance(minutes=2)
    assert await yard.h.cycle("hand_over") == 1

    assert (deaf.seen, yard.remote.seen) == ([1], [1])
    assert [run.state for run in await yard.records()] == [State.PENDING]


async def test_an_answer_that_cannot_be_written_is_asked_for_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database is gone")

    await yard.queue(1)
    with monkeypatch.context() as patch:
        patch.setattr("trax.remote.hand_over.record_submission_results", gone)
        await yard.cycle()
    await yard.h.cycle("hand_over")
    assert yard.remote.seen == [1]

    await yard.h.advance(minutes=2)
    await yard.h.run_until_idle()

    assert yard.remote.seen == [1, 1]
    assert [run.state for run in await yard.records()] == [State.PENDING]


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_what_was_let_through_by_a_server_that_died_is_handed_over_by_the_next(url: str) -> None:
    """The first server commits the admission, and that is the last it does."""
    first, second = (Yard(Trax(url, max_active_jobs=None), Remote()) for _ in range(2))
    async with first.h:
        await first.queue(1, 2)
        await first.h.cycle("job_dispatcher")

    async with second.h:
        await second.h.run_until_idle()

        assert (first.remote.seen, second.remote.seen) == ([], [1, 2])
        assert [run.state for run in await second.records()] == [State.PENDING] * 2


async def test_a_late_refusal_does_not_touch_a_run_that_another_server_took_over(yard: Yard) -> None:
    class Slow(Remote):
        def __init__(self, answer: Refused | None) -> None:
            super().__init__()
            self.answer = answer
            self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            self.begun.set()
            await self.go_on.wait()
            return [self.answer for _ in batch]

    (queued,) = await yard.queue(1)
    await yard.h.cycle("job_dispatcher")
    store = await yard.app.context.store.open()
    submitters = [Slow(Refused("too late")), Slow(None)]
    servers = [HandOver(yard.app.context, store, submitter) for submitter in submitters]
    for server, submitter in zip(servers, submitters, strict=True):
        await server.turn()
        await submitter.begun.wait()
        await yard.h.advance(minutes=2)  # its time is up, and the next may take the run
    for server, submitter in zip(servers, submitters, strict=True):
        submitter.go_on.set()
        await server.drain()

    assert [run.state for run in await yard.records()] == [State.PENDING]
    assert (await yard.entry(queued.id)).dispatch_attempts == 0


async def test_so_many_calls_are_under_way_at_once_and_no_more(url: str) -> None:
    class Counting(Remote):
        def __init__(self) -> None:
            super().__init__()
            self.in_flight = self.most = 0
            self.meeting = asyncio.Barrier(4)

        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            self.in_flight += 1
            self.most = max(self.most, self.in_flight)
            await self.meeting.wait()  # four must be here together, or nobody goes on
            self.in_flight -= 1
            return await super().submit(batch)

    remote = Counting()
    yard = Yard(Trax(url, max_active_jobs=None, max_concurrent_dispatch=4), remote)
    async with asyncio.timeout(30), yard.h:
        await yard.queue(*range(8))
        await yard.cycle()

        assert sorted(remote.seen) == list(range(8))
        assert remote.most == 4


async def test_a_submitter_that_hangs_loses_its_runs_and_holds_up_only_itself(url: str) -> None:
    class Hanging(Remote):
        name = "hanging"
        timeout = timedelta(0)

        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            await asyncio.Event().wait()
            return [None for _ in batch]

    yard = Yard(Trax(url, max_active_jobs=None), Remote())
    hung = yard.app.train("hung", yard.work.route)
    yard.app.route(hung, to=Hanging())
    async with asyncio.timeout(30), yard.h:
        await yard.app.queue(hung, 1)
        await yard.queue(2)
        await yard.cycle()

        (record,) = await yard.app.executions.list(state="failed")
        assert (record.train, record.failure_exception) == ("hung", "TimeoutError")
        assert yard.remote.seen == [2]


async def test_a_run_handed_over_has_its_full_time_to_begin(url: str) -> None:
    async for yard in _yard(url, max_dispatch_attempts=1):
        await yard.queue(1)
        await yard.h.cycle("job_dispatcher")
        await yard.h.advance(minutes=19)
        await yard.h.cycle("hand_over")

        await yard.h.advance(minutes=19)
        await yard.h.cycle("manifest_manager")
        assert [run.state for run in await yard.records()] == [State.PENDING]

        await yard.h.advance(minutes=2)
        await yard.h.cycle("manifest_manager")
        assert [run.failure_exception for run in await yard.records()] == ["StalePendingTimeout"]


async def test_a_run_that_nobody_begins_is_handed_over_again_so_often_and_then_it_has_failed(
    url: str,
) -> None:
    async for yard in _yard(url, max_dispatch_attempts=3):
        (queued,) = await yard.queue(1)
        await yard.cycle()

        for attempts in (1, 2):
            await yard.h.advance(minutes=21)
            managed = await yard.h.cycle("manifest_manager")
            (run,) = await yard.records()
            assert managed.handed_over_again == [run.id]
            assert (run.state, (await yard.entry(queued.id)).dispatch_attempts) == (State.PENDING, attempts)
            await yard.h.cycle("hand_over")
        await yard.h.advance(minutes=21)
        managed = await yard.h.cycle("manifest_manager")

        (run,) = await yard.records()
        assert yard.remote.seen == [1, 1, 1]
        assert managed.handed_over_again == []
        assert (run.state, run.failure_exception) == (State.FAILED, "StalePendingTimeout")


async def test_a_run_that_begins_late_is_not_executed_by_whoever_gets_it_next(yard: Yard) -> None:
    await yard.queue(1)
    await yard.cycle()
    await yard.h.advance(minutes=21)
    await yard.h.cycle("manifest_manager")
    (run,) = await yard.records()

    async with yard.app.receiver() as late, yard.app.receiver() as next_one:
        assert await late.claim_by_id(run.id)
        assert await yard.h.cycle("hand_over") == 0  # it has begun: there is nothing left to hand over
        assert not await next_one.claim_by_id(run.id)
        await late.wait_until_idle()

    assert [run.state for run in await yard.records()] == [State.COMPLETED]


async def test_what_waited_for_a_server_that_was_down_is_handed_over_when_one_is_back(yard: Yard) -> None:
    await yard.queue(1)
    await yard.h.cycle("job_dispatcher")
    await yard.h.advance(hours=2)

    managed = await yard.h.cycle("manifest_manager")
    again = await yard.h.cycle("manifest_manager")
    await yard.h.cycle("hand_over")

    (run,) = await yard.records()
    assert (managed.handed_over_again, again.handed_over_again) == ([run.id], [])
    assert (run.state, yard.remote.seen) == (State.PENDING, [1])


async def test_a_run_whose_entry_was_given_to_another_is_not_handed_over_again(yard: Yard) -> None:
    (queued,) = await yard.queue(1)
    await yard.cycle()
    store = await yard.app.context.store.open()
    await store.call(_forget, queued.id)
    await yard.h.advance(minutes=21)

    managed = await yard.h.cycle("manifest_manager")

    assert managed.handed_over_again == []
    assert [run.failure_exception for run in await yard.records()] == ["StalePendingTimeout"]


def _forget(connection: Any, entry_id: int) -> None:
    queue = work_queue.tables(connection).work_queue
    connection.execute(queue.update().where(queue.c.id == entry_id).values(metadata_id=None))
