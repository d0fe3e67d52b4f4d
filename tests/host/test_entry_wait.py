"""Waiting for a job: its last run, once it is over."""

from __future__ import annotations

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax import EntryCancelled, NotFound, Retry, Trax, TraxError, WorkQueueEntry, every, junction
from trax.errors import DefinitionError, WaitTimedOut
from trax.records import State
from trax.store.queue import queue_lists
from trax.store.schema import tables
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from sqlalchemy import Connection

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
TIMEOUT_SECONDS = 30


@junction
async def wave(name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    app = Trax(url)

    @app.train(retry=Retry(max_retries=2, delay=timedelta(minutes=5)))
    async def greet(name: str) -> str:
        if name == "Mallory":
            raise ValueError(name)
        return f"Hello, {name}"

    async with Harness(app, now=NOON) as opened:
        yield opened


async def test_wait_returns_the_run_of_an_ended_job(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")
    await h.run_until_idle()

    run = await entry.wait(timeout=TIMEOUT_SECONDS)

    assert (run.state, run.output, run.external_id) == (State.COMPLETED, "Hello, Ada", entry.external_id)


async def test_wait_returns_as_soon_as_the_result_is_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trax.worker.entry.POLL_SECONDS", 3600)  # only the event can tell
    app, may_end = Trax(url, local_worker_count=2), asyncio.Event()

    @app.train
    async def patient(name: str) -> str:
        if name == "Ada":
            await may_end.wait()
        return name

    async with app:
        entry = await app.queue(patient, "Ada")
        waiting = asyncio.create_task(entry.wait())
        await asyncio.wait_for((await app.queue(patient, "Bob")).wait(), TIMEOUT_SECONDS)
        was_done = waiting.done()
        may_end.set()
        run = await asyncio.wait_for(waiting, TIMEOUT_SECONDS)

    assert (was_done, run.state) == (False, State.COMPLETED)


async def test_wait_lasts_through_retries_until_the_job_gives_up(h: Harness) -> None:
    entry = await h.app.queue("greet", "Mallory")
    waiting = asyncio.create_task(entry.wait())
    await h.run_until_idle()
    await looked(h)
    done_after_the_first_failure = waiting.done()
    await h.advance(minutes=5)
    await h.run_until_idle()

    run = await asyncio.wait_for(waiting, TIMEOUT_SECONDS)

    assert not done_after_the_first_failure
    assert (run.state, run.attempt, run.failure_exception) == (State.FAILED, 2, "ValueError")


async def test_wait_for_a_withdrawn_entry_raises_entry_cancelled(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada", delay=timedelta(minutes=1))
    waiting = asyncio.create_task(entry.wait())
    await looked(h)

    await h.app.work_queue.cancel([entry.id])

    with pytest.raises(EntryCancelled, match=f"entry {entry.id} of train 'greet' was withdrawn"):
        await asyncio.wait_for(waiting, TIMEOUT_SECONDS)


async def test_a_cancelled_run_ends_the_wait(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")
    ids = (await h.cycle("job_dispatcher")).metadata_ids
    await h.app.executions.cancel(ids)

    assert (await entry.wait(timeout=TIMEOUT_SECONDS)).state is State.CANCELLED


async def test_a_wait_can_time_out_before_the_job_ends(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")

    with pytest.raises(TimeoutError, match=f"entry {entry.id} of train 'greet' has not ended after 10 ms"):
        await entry.wait(timeout=0.01)
    with pytest.raises(TimeoutError):
        await entry.wait(timeout=timedelta(milliseconds=1))

    await h.run_until_idle()
    assert (await entry.wait()).state is State.COMPLETED


@pytest.mark.parametrize("wrong", [-1, "soon", True])
async def test_an_invalid_timeout_is_refused(h: Harness, wrong: Any) -> None:
    entry = await h.app.queue("greet", "Ada")

    with pytest.raises(DefinitionError, match="timeout must be a number of seconds"):
        await entry.wait(timeout=wrong)


async def test_an_entry_that_was_deleted_ends_the_wait(h: Harness) -> None:
    def forget(connection: Connection) -> None:
        connection.execute(tables(connection).work_queue.delete())

    entry = await h.app.queue("greet", "Ada")
    h.app.context.store.open_blocking().run(forget)

    with pytest.raises(NotFound, match=f"there is no entry {entry.id}: it was deleted"):
        await entry.wait()


async def test_concurrent_waits_share_one_query(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ended = queue_lists.load_ended

    def counted(connection: Connection, ids: list[int]) -> Any:
        asked.append(len(ids))
        return ended(connection, ids)

    entries = await h.app.queue_many("greet", [f"{number}" for number in range(50)])
    await h.run_until_idle()
    monkeypatch.setattr(queue_lists, "load_ended", counted)

    runs = await asyncio.gather(*(entry.wait() for entry in [*entries, *entries]))

    assert asked == [50]
    assert [run.external_id for run in runs[:50]] == [entry.external_id for entry in entries]


async def test_polling_stops_when_no_caller_waits(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")
    with pytest.raises(TimeoutError):
        await entry.wait(timeout=0.01)

    looking = [task for task in asyncio.all_tasks() if task.get_name() == "trax waiting"]
    await asyncio.wait_for(asyncio.gather(*looking), TIMEOUT_SECONDS)


async def test_a_triggered_run_can_be_waited_for(h: Harness) -> None:
    await h.app.manifests.schedule(h.app.trains.get("greet"), "hello", "Ada", every(hours=1))
    entry = await h.app.manifests.trigger("hello")
    await h.run_until_idle()

    assert (await entry.wait()).manifest == "hello"


async def test_an_entry_equals_every_record_of_it_and_shows_no_more_than_that(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")
    record = WorkQueueEntry(**entry.as_fields())

    assert entry == record == entry
    assert entry == await h.app.work_queue.get(entry.id)
    assert hash(entry) == hash(record)
    assert repr(entry).partition("(")[2] == repr(record).partition("(")[2]
    assert entry != await h.app.queue("greet", "Ada")


async def test_a_copy_of_an_entry_is_detached_from_its_app(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")
    copy = pickle.loads(pickle.dumps(entry))  # noqa: S301 - our own bytes

    assert copy == entry
    with pytest.raises(TraxError, match=r"is detached from its app; use app.work_queue.get"):
        await copy.wait()


async def looked(h: Harness) -> None:
    """Return once those who wait have been looked for: another one who came later has been."""
    done = await h.app.queue("greet", "Bob")
    await h.cycle("job_dispatcher")
    await h.work()
    await asyncio.wait_for(done.wait(), TIMEOUT_SECONDS)


def test_blocking_code_waits_for_a_job_of_another_process(url: str) -> None:
    here, elsewhere = Trax(url), Trax(url)

    async def serve() -> None:
        async with Harness(elsewhere) as h:
            await h.run_until_idle()

    for app in (here, elsewhere):
        app.train("greet", wave)
    entry = here.sync.queue("greet", "Ada")
    with pytest.raises(TimeoutError, match=f"entry {entry.id} of train 'greet' has not ended after 10 ms"):
        here.sync.wait(entry, timeout=0.01)
    asyncio.run(serve())

    run = here.sync.wait(entry, timeout=timedelta(seconds=TIMEOUT_SECONDS))

    assert (run.state, run.output) == (State.COMPLETED, "Hello, Ada")
    here.close()


async def test_a_thread_waits_for_a_job_of_the_app_that_runs_in_this_process(url: str) -> None:
    app = Trax(url)
    app.train("greet", wave)

    async with app:
        entry = await app.queue("greet", "Ada")
        run = await asyncio.to_thread(app.sync.wait, entry, TIMEOUT_SECONDS)

    assert run.output == "Hello, Ada"


async def test_waiting_does_not_block_a_running_event_loop(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")

    with pytest.raises(TraxError, match=r"app\.sync\.wait would block the running event loop"):
        h.app.sync.wait(entry)


async def test_a_wait_that_ends_early_is_an_error_of_trax(h: Harness) -> None:
    entry = await h.app.queue("greet", "Ada")

    with pytest.raises(WaitTimedOut):
        await entry.wait(timeout=0)
