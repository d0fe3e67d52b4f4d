from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import Cancel, Metadata, Retry, Trax, current
from trax.admin.job_dispatcher import dispatch
from trax.dispatch.routing import Routing
from trax.host.worker import Worker
from trax.records import QueueStatus, State
from trax.store import metadata_sweeps, work_queue, workers

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
        return await Worker.started(self.app.parts, self.store)

    async def dispatch(self) -> None:
        await self.store.call(dispatch, self.store, self.app.parts.settings, Routing())

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.app.executions.list()))


@pytest.fixture
async def station(url: str) -> AsyncGenerator[Station]:
    app = Trax(url, local_worker_count=4, max_active_jobs=None)
    yield Station(app, await app.parts.store.opened())
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


async def test_a_job_that_fails_alone_is_tried_again_and_then_given_up(station: Station) -> None:
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


async def test_a_requeued_letter_of_a_job_alone_runs_with_its_own_input(station: Station) -> None:
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


async def test_what_cannot_help_is_not_tried_again(station: Station) -> None:
    @station.app.train(retry=Retry(max_retries=9, give_up_on=(LookupError,)))
    async def fail(_number: int) -> None:
        raise KeyError("no such thing")

    worker = await station.start()
    await station.app.queue(fail, 1)
    await station.dispatch()
    await worker.run_all()

    assert len(await station.app.dead_letters.list()) == 1


async def test_a_poisoned_job_gives_up_with_the_reason_and_blocks_nobody(station: Station) -> None:
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
    assert "refused its input" in letter.reason


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

    await station.store.call(metadata_sweeps.request_cancel, [record.id])
    await worker.beat()
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


async def test_hooks_hear_of_queued_runs_too(station: Station) -> None:
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


async def test_a_worker_that_leaves_is_gone_and_one_that_was_forgotten_is_told(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await station.start()
    await worker.leave()

    assert await station.store.ask(workers.listed) == []
    await worker.beat()
    assert "was taken for dead" in caplog.text


def _spoil_inputs(connection: Any) -> None:
    from trax.store.schema import tables

    connection.execute(tables(connection).metadata.update().values(input="5"))
