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


class HandOverSetup:
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


async def _setup(url: str, **settings: Any) -> AsyncGenerator[HandOverSetup]:
    setup = HandOverSetup(Trax(url, max_active_jobs=None, **settings), Remote())
    async with setup.h:
        yield setup


@pytest.fixture
async def setup(url: str) -> AsyncGenerator[HandOverSetup]:
    async for one in _setup(url):
        yield one


@pytest.fixture
async def impatient(url: str) -> AsyncGenerator[HandOverSetup]:
    """A setup where nothing is handed over twice."""
    async for one in _setup(url, max_dispatch_attempts=0):
        yield one


async def test_an_admitted_run_is_handed_over_once_and_stays_pending(setup: HandOverSetup) -> None:
    await setup.queue(1, 2)

    await setup.cycle()
    await setup.cycle()

    assert setup.remote.calls == [[1], [2]]
    assert [(run.state, run.submitter) for run in await setup.records()] == [(State.PENDING, "remote")] * 2
    assert await setup.h.work() == 0


async def test_runs_are_handed_over_by_priority_then_age(setup: HandOverSetup) -> None:
    await setup.queue(1, 2)
    await setup.app.queue(setup.work, 3, priority=9)

    await setup.cycle()

    assert setup.remote.seen == [3, 1, 2]


async def test_a_submitter_gets_no_more_runs_in_a_call_than_its_batch_size(setup: HandOverSetup) -> None:
    setup.remote.batch_size = 2
    await setup.queue(1, 2, 3)

    await setup.cycle()

    assert setup.remote.calls == [[1, 2], [3]]


async def test_a_failed_hand_over_requeues_the_entry_and_the_next_attempt_is_a_new_run(
    setup: HandOverSetup,
) -> None:
    setup.remote.error = OSError("no route")
    (queued,) = await setup.queue(1)

    await setup.cycle()

    (run,) = await setup.records()
    entry = await setup.entry(queued.id)
    assert (run.state, run.failure_junction) == (State.FAILED, "dispatch_jobs")
    assert (run.failure_exception, run.failure_reason) == ("OSError", "no route")
    assert run.ended_at == setup.h.now
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.QUEUED, 1)
    assert (entry.metadata_id, entry.dispatched_at) == (None, None)
    assert entry.scheduled_at == setup.h.now + timedelta(seconds=4)

    setup.remote.error = None
    await setup.cycle()

    assert [run.state for run in await setup.records()] == [State.FAILED, State.PENDING]
    assert (await setup.entry(queued.id)).status == QueueStatus.DISPATCHED


async def test_one_refusal_among_ten_affects_one_run(setup: HandOverSetup) -> None:
    setup.remote.batch_size = 5
    setup.remote.refused = {4}
    await setup.queue(*range(10))

    await setup.cycle()

    states = [run.state for run in await setup.records()]
    assert [number for number, state in enumerate(states) if state == State.FAILED] == [4]
    assert states.count(State.PENDING) == 9


async def test_a_job_whose_hand_over_keeps_failing_becomes_a_dead_letter_with_its_input(
    setup: HandOverSetup,
) -> None:
    setup.remote.error = OSError("no route")
    (queued,) = await setup.queue(7)

    for _ in range(6):
        await setup.cycle()

    entry = await setup.entry(queued.id)
    (letter,) = await setup.app.dead_letters.list()
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.DISPATCHED, 5)
    assert [run.state for run in await setup.records()] == [State.FAILED] * 5
    assert (letter.train, letter.input) == ("work", 7)
    assert letter.reason == "its hand-over failed 5 times; the last error was OSError: no route; it never ran"

    setup.remote.error = None
    assert await setup.app.dead_letters.requeue([letter.id]) == 1
    await setup.cycle()

    assert (await setup.records())[-1].state == State.PENDING


async def test_a_manifest_whose_hand_over_keeps_failing_gets_a_dead_letter_and_no_failures(
    setup: HandOverSetup,
) -> None:
    setup.remote.error = OSError("no route")
    setup.app.schedule(setup.work, "hourly", 7, every(hours=1))
    await setup.h.seed()

    for _ in range(7):
        await setup.h.cycle("manifest_manager")
        await setup.cycle()

    manifest = await setup.app.manifests.get("hourly")
    (letter,) = await setup.app.dead_letters.list()
    assert (manifest.failure_count, manifest.next_due_at) == (0, None)
    assert (letter.manifest, letter.retry_count) == ("hourly", 0)
    assert letter.reason == "its hand-over failed 5 times; the last error was OSError: no route; it never ran"
    assert len(await setup.records()) == 5

    setup.remote.error = None
    assert await setup.app.dead_letters.requeue([letter.id]) == 1
    await setup.h.cycle("manifest_manager")
    await setup.cycle()

    assert (await setup.records())[-1].state == State.PENDING
    assert len(await setup.app.dead_letters.list()) == 1


async def test_with_no_attempts_allowed_the_first_failure_is_the_last(impatient: HandOverSetup) -> None:
    impatient.remote.error = OSError("no route")
    (queued,) = await impatient.queue(1)

    await impatient.cycle()
    await impatient.cycle()

    entry = await impatient.entry(queued.id)
    (letter,) = await impatient.app.dead_letters.list()
    assert (entry.status, entry.dispatch_attempts) == (QueueStatus.DISPATCHED, 0)
    assert "its hand-over failed once" in letter.reason
    assert len(await impatient.records()) == 1


async def test_a_requeued_entry_gets_the_current_priority_of_its_group(setup: HandOverSetup) -> None:
    entry = await setup.app.queue(setup.work, 1, group="mail")
    await setup.h.cycle("job_dispatcher")
    await setup.app.groups.update("mail", priority=20)

    setup.remote.error = OSError("no route")
    await setup.h.cycle("hand_over")

    line = await (await setup.app.context.store.open()).ask(inspect.load_position, entry.id)
    assert line is not None
    assert line.group_priority == 20


async def test_a_failed_hand_over_of_an_extra_run_does_not_hold_up_the_schedule(setup: HandOverSetup) -> None:
    """The manager looks while the run waits to be handed over, and leaves the schedule until its end."""
    setup.app.schedule(setup.work, "hourly", 7, every(hours=1), start="next_occurrence")
    await setup.h.seed()
    await setup.app.manifests.trigger("hourly")
    await setup.h.cycle("job_dispatcher")
    await setup.h.advance(hours=1)
    assert (await setup.h.cycle("manifest_manager")).queued == []

    setup.remote.error = OSError("no route")
    await setup.h.cycle("hand_over")

    assert len((await setup.h.cycle("manifest_manager")).queued) == 1


async def test_a_refused_entry_is_cancelled_when_a_newer_one_is_queued(setup: HandOverSetup) -> None:
    setup.app.schedule(setup.work, "overlapping", 1, every(minutes=1), max_instances=3)
    await setup.h.seed()
    await setup.h.cycle("manifest_manager")
    await setup.h.cycle("job_dispatcher")
    await setup.h.advance(minutes=1)
    await setup.h.cycle("manifest_manager")

    setup.remote.error = OSError("no route")
    await setup.h.cycle("hand_over")

    newer, older = await (await setup.app.context.store.open()).ask(listing.entries)
    assert (newer.status, older.status) == (QueueStatus.QUEUED, QueueStatus.CANCELLED)
    assert [run.state for run in await setup.records()] == [State.FAILED]


async def test_an_invalid_input_counts_dispatch_attempts_and_does_not_stop_others(url: str) -> None:
    async for setup in _setup(url, max_dispatch_attempts=2):
        (bad, _) = await setup.queue(1, 2)
        store = await setup.app.context.store.open()
        await store.call(_spoil, bad.id)

        for _ in range(3):
            await setup.cycle()

        (letter,) = await setup.app.dead_letters.list()
        assert setup.remote.seen == [2]
        assert (await setup.entry(bad.id)).dispatch_attempts == 2
        assert "train 'work': invalid input" in letter.reason


def _spoil(connection: Any, entry_id: int) -> None:
    queue = work_queue.tables(connection).work_queue
    connection.execute(queue.update().where(queue.c.id == entry_id).values(input='"seven"'))


async def test_no_two_servers_hand_over_the_same_run(setup: HandOverSetup) -> None:
    await setup.queue(*range(20))
    await setup.h.cycle("job_dispatcher")
    store = await setup.app.context.store.open()
    servers = [HandOver(setup.app.context, store, setup.remote) for _ in range(4)]

    while any(await asyncio.gather(*(server.turn() for server in servers))):
        for server in servers:
            await server.drain()

    assert sorted(setup.remote.seen) == list(range(20))


async def test_a_run_left_behind_by_a_dead_server_is_handed_over_by_another(setup: HandOverSetup) -> None:
    """The first server takes the run, calls, and dies before it can write down the answer."""
    begun = asyncio.Event()

    class Deaf(Remote):
        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            await super().submit(batch)
            begun.set()
            await asyncio.Event().wait()
            return []

    await setup.queue(1)
    await setup.h.cycle("job_dispatcher")
    store = await setup.app.context.store.open()
    deaf = Deaf()
    dying = HandOver(setup.app.context, store, deaf)
    await dying.turn()
    await begun.wait()
    await dying.drain(0)

    assert await setup.h.cycle("hand_over") == 0  # it may still be at it
    await setup.h.advance(minutes=2)
    assert await setup.h.cycle("hand_over") == 1

    assert (deaf.seen, setup.remote.seen) == ([1], [1])
    assert [run.state for run in await setup.records()] == [State.PENDING]


async def test_a_run_whose_submission_result_cannot_be_stored_is_submitted_again(
    setup: HandOverSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the database is gone")

    await setup.queue(1)
    with monkeypatch.context() as patch:
        patch.setattr("trax.remote.hand_over.record_submission_results", gone)
        await setup.cycle()
    await setup.h.cycle("hand_over")
    assert setup.remote.seen == [1]

    await setup.h.advance(minutes=2)
    await setup.h.run_until_idle()

    assert setup.remote.seen == [1, 1]
    assert [run.state for run in await setup.records()] == [State.PENDING]


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_runs_admitted_by_a_dead_server_are_handed_over_by_the_next(url: str) -> None:
    """The first server commits the admission, and that is the last it does."""
    first, second = (HandOverSetup(Trax(url, max_active_jobs=None), Remote()) for _ in range(2))
    async with first.h:
        await first.queue(1, 2)
        await first.h.cycle("job_dispatcher")

    async with second.h:
        await second.h.run_until_idle()

        assert (first.remote.seen, second.remote.seen) == ([], [1, 2])
        assert [run.state for run in await second.records()] == [State.PENDING] * 2


async def test_a_late_refusal_does_not_affect_a_run_resubmitted_by_another_server(
    setup: HandOverSetup,
) -> None:
    class Slow(Remote):
        def __init__(self, answer: Refused | None) -> None:
            super().__init__()
            self.answer = answer
            self.begun, self.go_on = asyncio.Event(), asyncio.Event()

        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            self.begun.set()
            await self.go_on.wait()
            return [self.answer for _ in batch]

    (queued,) = await setup.queue(1)
    await setup.h.cycle("job_dispatcher")
    store = await setup.app.context.store.open()
    submitters = [Slow(Refused("too late")), Slow(None)]
    servers = [HandOver(setup.app.context, store, submitter) for submitter in submitters]
    for server, submitter in zip(servers, submitters, strict=True):
        await server.turn()
        await submitter.begun.wait()
        await setup.h.advance(minutes=2)  # its time is up, and the next may take the run
    for server, submitter in zip(servers, submitters, strict=True):
        submitter.go_on.set()
        await server.drain()

    assert [run.state for run in await setup.records()] == [State.PENDING]
    assert (await setup.entry(queued.id)).dispatch_attempts == 0


async def test_concurrent_submissions_are_limited_by_the_setting(url: str) -> None:
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
    setup = HandOverSetup(Trax(url, max_active_jobs=None, max_concurrent_dispatch=4), remote)
    async with asyncio.timeout(30), setup.h:
        await setup.queue(*range(8))
        await setup.cycle()

        assert sorted(remote.seen) == list(range(8))
        assert remote.most == 4


async def test_a_submitter_that_hangs_loses_its_runs_and_holds_up_only_itself(url: str) -> None:
    class Hanging(Remote):
        name = "hanging"
        timeout = timedelta(0)

        async def submit(self, batch: Sequence[Submission]) -> list[Any]:
            await asyncio.Event().wait()
            return [None for _ in batch]

    setup = HandOverSetup(Trax(url, max_active_jobs=None), Remote())
    hung = setup.app.train("hung", setup.work.route)
    setup.app.route(hung, to=Hanging())
    async with asyncio.timeout(30), setup.h:
        await setup.app.queue(hung, 1)
        await setup.queue(2)
        await setup.cycle()

        (record,) = await setup.app.executions.list(state="failed")
        assert (record.train, record.failure_exception) == ("hung", "TimeoutError")
        assert setup.remote.seen == [2]


async def test_a_run_handed_over_has_its_full_time_to_begin(url: str) -> None:
    async for setup in _setup(url, max_dispatch_attempts=1):
        await setup.queue(1)
        await setup.h.cycle("job_dispatcher")
        await setup.h.advance(minutes=19)
        await setup.h.cycle("hand_over")

        await setup.h.advance(minutes=19)
        await setup.h.cycle("manifest_manager")
        assert [run.state for run in await setup.records()] == [State.PENDING]

        await setup.h.advance(minutes=2)
        await setup.h.cycle("manifest_manager")
        assert [run.failure_exception for run in await setup.records()] == ["StalePendingTimeout"]


async def test_a_run_that_does_not_start_is_handed_over_again_until_it_fails(
    url: str,
) -> None:
    async for setup in _setup(url, max_dispatch_attempts=3):
        (queued,) = await setup.queue(1)
        await setup.cycle()

        for attempts in (1, 2):
            await setup.h.advance(minutes=21)
            managed = await setup.h.cycle("manifest_manager")
            (run,) = await setup.records()
            assert managed.handed_over_again == [run.id]
            assert (run.state, (await setup.entry(queued.id)).dispatch_attempts) == (State.PENDING, attempts)
            await setup.h.cycle("hand_over")
        await setup.h.advance(minutes=21)
        managed = await setup.h.cycle("manifest_manager")

        (run,) = await setup.records()
        assert setup.remote.seen == [1, 1, 1]
        assert managed.handed_over_again == []
        assert (run.state, run.failure_exception) == (State.FAILED, "StalePendingTimeout")


async def test_a_run_that_starts_late_is_not_executed_twice(setup: HandOverSetup) -> None:
    await setup.queue(1)
    await setup.cycle()
    await setup.h.advance(minutes=21)
    await setup.h.cycle("manifest_manager")
    (run,) = await setup.records()

    async with setup.app.receiver() as late, setup.app.receiver() as next_one:
        assert await late.claim_by_id(run.id)
        assert await setup.h.cycle("hand_over") == 0  # it has begun: there is nothing left to hand over
        assert not await next_one.claim_by_id(run.id)
        await late.wait_until_idle()

    assert [run.state for run in await setup.records()] == [State.COMPLETED]


async def test_runs_that_waited_for_a_stopped_server_are_handed_over_at_its_return(
    setup: HandOverSetup,
) -> None:
    await setup.queue(1)
    await setup.h.cycle("job_dispatcher")
    await setup.h.advance(hours=2)

    managed = await setup.h.cycle("manifest_manager")
    again = await setup.h.cycle("manifest_manager")
    await setup.h.cycle("hand_over")

    (run,) = await setup.records()
    assert (managed.handed_over_again, again.handed_over_again) == ([run.id], [])
    assert (run.state, setup.remote.seen) == (State.PENDING, [1])


async def test_a_run_whose_entry_was_given_to_another_is_not_handed_over_again(setup: HandOverSetup) -> None:
    (queued,) = await setup.queue(1)
    await setup.cycle()
    store = await setup.app.context.store.open()
    await store.call(_forget, queued.id)
    await setup.h.advance(minutes=21)

    managed = await setup.h.cycle("manifest_manager")

    assert managed.handed_over_again == []
    assert [run.failure_exception for run in await setup.records()] == ["StalePendingTimeout"]


def _forget(connection: Any, entry_id: int) -> None:
    queue = work_queue.tables(connection).work_queue
    connection.execute(queue.update().where(queue.c.id == entry_id).values(metadata_id=None))
