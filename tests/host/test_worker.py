from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.results import refuse_results
from tests.support.waiting import until

from trax import Cancel, Metadata, Retry, Trax, current
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.errors import StoreUnavailable
from trax.records import QueueStatus, State
from trax.store import workers
from trax.store.queue import work_queue
from trax.store.runs import rescue
from trax.worker import worker as worker_module
from trax.worker.heartbeat import LoopWatch
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.store import Store


class Station:
    """An app, its store and one worker, with nothing running by itself."""

    def __init__(self, app: Trax, store: Store) -> None:
        self.app = app
        self.store = store

    async def start(self) -> Worker:
        """The worker registers when the trains are known."""
        return await Worker.start(self.app.context, self.store)

    async def dispatch(self) -> None:
        await self.store.call(run_dispatch_cycle, self.store, self.app.context.settings, Routing())

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.app.executions.list()))


@pytest.fixture
async def station(url: str) -> AsyncGenerator[Station]:
    app = Trax(url, local_worker_count=4, max_active_jobs=None)
    yield Station(app, await app.context.store.open())
    app.close()


async def test_jobs_run_side_by_side_under_their_own_records(station: Station) -> None:
    meeting = asyncio.Barrier(3)

    @station.app.train
    async def meet(number: int) -> int:
        await meeting.wait()
        return number

    worker = await station.start()
    entries = await station.app.queue_many(meet, [1, 2, 3])
    await station.dispatch()

    async with asyncio.timeout(30):
        assert await worker.run_all() == 3

    records = await station.records()
    assert [(record.state, record.output, record.worker) for record in records] == [
        (State.COMPLETED, number, worker.id) for number in (1, 2, 3)
    ]
    assert [record.external_id for record in records] == [entry.external_id for entry in entries]


async def test_a_failed_single_job_is_retried_and_then_given_up(station: Station) -> None:
    @station.app.train(retry=Retry(max_retries=2, delay=timedelta(0)))
    async def fail(number: int) -> None:
        raise ValueError(number)

    worker = await station.start()
    entry = await station.app.queue(fail, 7)
    for _ in range(3):
        await station.dispatch()
        await worker.run_all()

    records = await station.records()
    (letter,) = await station.app.dead_letters.list()
    assert [(record.state, record.attempt) for record in records] == [(State.FAILED, 1), (State.FAILED, 2)]
    assert {record.external_id for record in records} == {entry.external_id}
    assert (letter.manifest, letter.train, letter.input, letter.retry_count) == (None, "fail", 7, 2)
    assert "ValueError: 7" in letter.reason


async def test_a_requeued_letter_of_a_single_job_runs_with_its_own_input(station: Station) -> None:
    seen: list[int] = []

    @station.app.train(retry=Retry(max_retries=1))
    async def fail_once(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise ValueError(number)

    worker = await station.start()
    await station.app.queue(fail_once, 7)
    await station.dispatch()
    await worker.run_all()

    assert await station.app.dead_letters.requeue_all() == 1
    await station.dispatch()
    await worker.run_all()

    (letter,) = await station.app.dead_letters.list()
    assert seen == [7, 7]
    assert letter.retry_metadata_id == (await station.records())[-1].id


async def test_a_failure_that_retries_cannot_fix_is_not_retried(station: Station) -> None:
    @station.app.train(retry=Retry(max_retries=9, give_up_on=(LookupError,)))
    async def fail(_number: int) -> None:
        raise KeyError("no such thing")

    worker = await station.start()
    await station.app.queue(fail, 1)
    await station.dispatch()
    await worker.run_all()

    assert len(await station.app.dead_letters.list()) == 1


async def test_a_poisoned_job_gives_up_with_the_reason_and_blocks_no_other(station: Station) -> None:
    @station.app.train
    async def greet(name: str) -> str:
        return name

    worker = await station.start()
    await station.app.queue(greet, "Ada")
    await station.dispatch()
    await station.store.call(_spoil_inputs)
    await station.app.queue(greet, "Grace")
    await station.dispatch()

    await worker.run_all()

    spoiled, fine = await station.records()
    (letter,) = await station.app.dead_letters.list()
    assert (spoiled.state, spoiled.failure_exception) == (State.FAILED, "InvalidInput")
    assert fine.state is State.COMPLETED
    assert "invalid input" in letter.reason


async def test_cancelling_by_record_reaches_a_running_job(station: Station) -> None:
    started = asyncio.Event()

    @station.app.train
    async def wait(_number: int) -> None:
        started.set()
        await asyncio.Event().wait()

    worker = await station.start()
    await station.app.queue(wait, 1)
    await station.dispatch()
    await worker.claim()
    await started.wait()
    (record,) = await station.records()

    await station.store.call(rescue.request_cancel, [record.id])
    await worker.send_heartbeat()
    async with asyncio.timeout(30):
        await worker.drain(30)

    (record,) = await station.records()
    assert record.state is State.CANCELLED
    assert await station.app.dead_letters.list() == []


async def test_a_run_that_must_be_interrupted_goes_back_to_the_queue_uncounted(station: Station) -> None:
    started = asyncio.Event()
    attempts: list[int] = []

    @station.app.train
    async def slow(_number: int) -> None:
        run = current()
        assert run
        attempts.append(run.attempt)
        if len(attempts) == 1:
            started.set()
            await asyncio.Event().wait()

    worker = await station.start()
    entry = await station.app.queue(slow, 1)
    await station.dispatch()
    await worker.claim()
    await started.wait()

    async with asyncio.timeout(30):
        await worker.drain(0)

    back = await station.store.ask(work_queue.get, entry.id)
    assert back
    assert (back.status, back.metadata_id) == (QueueStatus.QUEUED, None)
    another = await station.start()
    await station.dispatch()
    await another.run_all()
    interrupted, completed = await station.records()
    assert (interrupted.state, interrupted.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (completed.state, attempts) == (State.COMPLETED, [1, 1])


async def test_hooks_are_called_for_queued_runs(station: Station) -> None:
    heard: list[str] = []

    def hook(name: str) -> Any:
        def listen(record: Metadata) -> None:
            heard.append(f"{name} {record.state}")

        return listen

    @station.app.train(
        on_started=hook("started"), on_completed=hook("completed"), on_cancelled=hook("cancelled")
    )
    async def work(number: int) -> None:
        if number == 2:
            raise Cancel("enough")

    worker = await station.start()
    for number in (1, 2):
        await station.app.queue(work, number)
        await station.dispatch()
        await worker.run_all()

    assert heard == [
        "started in_progress",
        "completed completed",
        "started in_progress",
        "cancelled cancelled",
    ]


async def test_a_worker_that_leaves_is_gone(station: Station) -> None:
    worker = await station.start()

    await worker.unregister()

    assert await station.store.ask(workers.load_list) == []


async def test_ten_workers_run_a_hundred_jobs_once_each(station: Station) -> None:
    ran: list[int] = []

    @station.app.train
    async def note(number: int) -> None:
        ran.append(number)
        await asyncio.sleep(0)

    ten = [await station.start() for _ in range(10)]
    await station.app.queue_many(note, range(100))
    await station.dispatch()
    async with asyncio.timeout(60):
        done = await asyncio.gather(*(worker.run_all() for worker in ten))

    assert sum(done) == 100
    assert sorted(ran) == list(range(100))
    states = [record.state for record in await station.app.executions.list(limit=200)]
    assert states == [State.COMPLETED] * 100


async def test_with_two_trains_of_the_same_input_the_named_one_runs(station: Station) -> None:
    @station.app.train
    async def first(name: str) -> str:
        return f"first {name}"

    @station.app.train
    async def second(name: str) -> str:
        return f"second {name}"

    worker = await station.start()
    await station.app.queue(second, "Ada")
    await station.dispatch()
    await worker.run_all()

    (record,) = await station.records()
    assert (record.train, record.output) == (second.name, "second Ada")
    assert first.name != second.name


async def test_a_train_that_leaves_python_fails_and_the_worker_continues(station: Station) -> None:
    @station.app.train
    async def leave(is_async: bool) -> None:
        await (_exit() if is_async else asyncio.to_thread(sys.exit, 3))

    @station.app.train
    def leave_blocking(code: int) -> None:
        sys.exit(code)

    worker = await station.start()
    await station.app.queue(leave, True)
    await station.app.queue(leave_blocking, 4)
    await station.dispatch()
    assert await worker.run_all() == 2

    failures = [(each.failure_exception, each.failure_reason) for each in await station.records()]
    assert failures == [("SystemExit", "3"), ("SystemExit", "4")]


async def test_endings_wait_for_a_database_that_is_away(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    @station.app.train
    async def work(number: int) -> int:
        return number

    worker = await station.start()
    await station.app.queue_many(work, [1, 2])
    await station.dispatch()
    await worker.claim()
    with monkeypatch.context() as away:
        refuse_results(away, lambda _: StoreUnavailable("away"))
        with pytest.raises(StoreUnavailable):
            await worker.drain(30)

    assert await worker.flush() == 2
    assert [record.output for record in await station.records()] == [1, 2]


async def test_an_ending_that_cannot_be_written_fails_its_run_and_no_other(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    @station.app.train(retry=Retry(max_retries=1))
    async def work(number: int) -> int:
        return number

    refuse_results(
        monkeypatch, lambda result: ValueError("two is too much") if result.output == "2" else None
    )
    worker = await station.start()
    await station.app.queue_many(work, [1, 2, 3])
    await station.dispatch()

    assert await worker.run_all() == 3

    one, two, three = await station.records()
    assert (one.output, two.state, three.output) == (1, State.FAILED, 3)
    assert two.failure_reason == "the result (completed) could not be stored: two is too much"


async def test_a_slow_hook_holds_up_no_other_ending(station: Station) -> None:
    go_on = asyncio.Event()
    heard: list[int] = []

    async def slow(record: Metadata) -> None:
        await go_on.wait()
        heard.append(record.id)

    @station.app.train(on_completed=slow)
    async def work(_number: int) -> None: ...

    worker = await station.start()
    for number in (1, 2):
        await station.app.queue(work, number)
        await station.dispatch()
        await worker.claim()
        async with asyncio.timeout(30):
            while not await worker.flush():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)

    records = await station.records()
    assert [record.state for record in records] == [State.COMPLETED] * 2
    assert heard == []
    go_on.set()
    await worker.drain(30)
    assert sorted(heard) == [record.id for record in records]


async def test_a_train_that_blocks_the_loop_is_reported_by_name(
    station: Station, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "LoopWatch", partial(LoopWatch, blocked_seconds=0.01))

    @station.app.train
    async def greedy(number: int) -> int:
        until(lambda: "of train 'greedy'" in caplog.text)
        return number

    worker = await station.start()
    await station.app.queue(greedy, 1)
    await station.dispatch()
    await worker.run_all()
    await worker.unregister()

    (record,) = await station.records()
    assert (record.state, f"run {record.id} of train 'greedy'" in caplog.text) == (State.COMPLETED, True)


async def _exit() -> None:
    sys.exit(3)


def _spoil_inputs(connection: Any) -> None:
    from trax.store.schema import tables

    connection.execute(tables(connection).metadata.update().values(input="5"))
