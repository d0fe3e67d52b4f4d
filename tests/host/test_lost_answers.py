"""A connection may die in the moment of a commit: the database has it, and whoever asked for it an error."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.results import refuse_results

from trax import Metadata, Retry, Trax, every
from trax.errors import StoreUnavailable
from trax.records import QueueStatus, State
from trax.server import start
from trax.store import workers
from trax.store.runs import rescue
from trax.testing import Harness
from trax.worker.dispatcher import dispatch_now
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from trax.store import Store


class Pause:
    """An answer that comes late."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.over = threading.Event()

    def __call__(self, result: Any) -> Any:
        self.reached.set()
        assert self.over.wait(30)
        return result


class Yard:
    """One worker that does nothing by itself, and a train that waits until it is let on."""

    def __init__(self, h: Harness, store: Store, worker: Worker) -> None:
        self.h = h
        self.app = h.app
        self.store = store
        self.worker = worker
        self.ran: list[str] = []
        self.heard: list[State] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def work(self, name: str) -> str:
        self.ran.append(name)
        await self.go_on.wait()
        if name == "fail":
            raise LookupError(name)
        return name

    async def queue(self, *names: str) -> None:
        await self.app.queue_many("work", names)
        await self.h.cycle("job_dispatcher")

    async def records(self) -> list[Metadata]:
        return list(reversed(await self.app.executions.list()))

    async def states(self) -> list[State]:
        return [record.state for record in await self.records()]

    async def beat(self, times: int) -> None:
        for _ in range(times):
            await self.worker.send_heartbeat()
        await self.worker.flush()

    async def drain(self) -> None:
        """Let what runs end, and write it down."""
        async with asyncio.timeout(30):
            await self.worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
        await self.worker.flush()

    @contextmanager
    def answers(self, answer: Callable[[Any], Any]) -> Generator[None]:
        """What becomes of the results of committed transactions, for this block."""
        run: Any = self.store.run

        def answered(*what: Any, **how: Any) -> Any:
            return answer(run(*what, **how))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.store, "run", answered)
            yield


@pytest.fixture
async def yard(url: str) -> AsyncGenerator[Yard]:
    app = Trax(url, local_worker_count=2)

    async def work(name: str) -> str:
        return await yards[0].work(name)

    def hear(record: Metadata, *_: object) -> None:
        yards[0].heard.append(record.state)

    app.train(retry=Retry(max_retries=3, delay=timedelta(0)), on_completed=hear, on_failed=hear)(work)
    async with Harness(app) as h:
        store = await app.context.store.open()
        yards = [Yard(h, store, await Worker.start(app.context, store))]
        yield yards[0]
        await yards[0].worker.drain(0)
        await yards[0].worker.unregister()


async def test_a_claim_whose_answer_was_lost_goes_back_to_the_queue_uncounted(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    await yard.queue("Ada")
    with yard.answers(lost), pytest.raises(StoreUnavailable):
        await yard.worker.claim()
    assert await yard.states() == [State.IN_PROGRESS]

    await yard.beat(2)

    (stray,) = await yard.records()
    (entry,) = await yard.app.work_queue.list()
    assert (stray.state, stray.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (entry.status, yard.ran) == (QueueStatus.QUEUED, [])
    assert f"holds runs [{stray.id}] without running them" in caplog.text
    await yard.h.run_until_idle()
    (_, again) = await yard.records()
    assert (again.state, again.attempt, yard.ran) == (State.COMPLETED, 1, ["Ada"])


async def test_so_does_what_was_let_through_the_gate_for_a_worker_that_came_along(yard: Yard) -> None:
    await yard.app.queue("work", "Ada")
    visit: Any = partial(yard.store.call, dispatch_now, yard.store, yard.app.context)
    with yard.answers(lost), pytest.raises(StoreUnavailable):
        await yard.worker.dispatch_and_claim(visit)
    assert await yard.states() == [State.IN_PROGRESS]

    await yard.beat(2)
    await yard.h.run_until_idle()

    assert await yard.states() == [State.CANCELLED, State.COMPLETED]


async def test_the_manifest_of_such_a_run_is_not_held_up_and_counts_no_failure(url: str) -> None:
    app = Trax(url)

    @app.train
    async def work(_name: str) -> None: ...

    app.schedule(work, "daily", "Ada", every(days=1))
    async with Harness(app) as h:
        store = await app.context.store.open()
        yard = Yard(h, store, await Worker.start(app.context, store))
        await h.cycle("manifest_manager")
        await h.cycle("job_dispatcher")
        with yard.answers(lost), pytest.raises(StoreUnavailable):
            await yard.worker.claim()

        await yard.beat(2)
        await h.run_until_idle()

        assert await yard.states() == [State.CANCELLED, State.COMPLETED]
        assert (await app.manifests.get("daily")).failure_count == 0
        await yard.worker.unregister()


async def test_a_stray_that_somebody_cancelled_is_not_run_again(yard: Yard) -> None:
    await yard.queue("Ada")
    with yard.answers(lost), pytest.raises(StoreUnavailable):
        await yard.worker.claim()
    (stray,) = await yard.records()
    await yard.store.call(rescue.request_cancel, [stray.id])

    await yard.beat(2)
    await yard.h.run_until_idle()

    (stray,) = await yard.records()
    reason = "cancelled by request before it started"
    assert (stray.state, stray.failure_reason, yard.ran) == (State.CANCELLED, reason, [])


async def test_what_runs_or_waits_for_a_slot_is_no_stray(yard: Yard) -> None:
    yard.go_on.clear()
    await yard.queue("one", "two", "three")
    await yard.worker.claim()
    yard.worker._pool.resize(3)  # pyright: ignore[reportPrivateUsage]
    await yard.worker.claim()

    await yard.beat(3)
    yard.go_on.set()
    await yard.drain()

    assert await yard.states() == [State.COMPLETED] * 3


async def test_what_has_ended_and_could_not_be_written_is_no_stray(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.queue("Ada")
    await yard.worker.claim()
    with monkeypatch.context() as away:
        refuse_results(away, lambda _: StoreUnavailable("away"))
        with pytest.raises(StoreUnavailable):
            await yard.drain()

    await yard.beat(3)

    assert await yard.states() == [State.COMPLETED]


async def test_what_is_just_being_written_is_no_stray(yard: Yard) -> None:
    pause = Pause()
    await yard.queue("Ada")
    await yard.worker.claim()
    await yard.worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
    with yard.answers(pause):
        flushing = asyncio.create_task(yard.worker.flush())
        await asyncio.to_thread(pause.reached.wait, 30)
    known = yard.worker._run_ids()  # pyright: ignore[reportPrivateUsage]
    pause.over.set()

    assert await flushing == 1
    assert known == [record.id for record in await yard.records()]


async def test_what_a_slow_claim_is_about_to_bring_is_no_stray(yard: Yard) -> None:
    pause = Pause()
    await yard.queue("Ada")
    with yard.answers(pause):
        claiming = asyncio.create_task(yard.worker.claim())
        await asyncio.to_thread(pause.reached.wait, 30)
    await yard.beat(3)
    pause.over.set()
    assert await claiming == 1
    await yard.beat(3)
    await yard.drain()

    assert (await yard.states(), yard.ran) == ([State.COMPLETED], ["Ada"])


@pytest.mark.parametrize(("name", "state"), [("Ada", State.COMPLETED), ("fail", State.FAILED)])
async def test_an_ending_that_was_written_before_is_told_once_and_alarms_nobody(
    yard: Yard, name: str, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    await yard.queue(name)
    await yard.worker.claim()
    with yard.answers(lost), pytest.raises(StoreUnavailable):
        await yard.drain()
    assert await yard.states() == [state]

    assert await yard.worker.flush() == 1
    await yard.worker._results.wait_for_hooks()  # pyright: ignore[reportPrivateUsage]

    (entry,) = await yard.app.work_queue.list()
    assert (await yard.states(), yard.heard) == ([state], [state])
    assert entry.status is (QueueStatus.QUEUED if state is State.FAILED else QueueStatus.DISPATCHED)
    assert "too late" not in caplog.text


async def test_a_worker_that_did_not_hear_that_it_is_registered_registers_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "PAUSES", (0,))
    app = Trax(url)
    store = await app.context.store.open()
    run: Any = store.run
    register = workers.register
    registered: list[int] = []

    def note(*what: Any, **how: Any) -> int:
        registered.append(register(*what, **how))
        return registered[-1]

    def lose_the_first(*what: Any, **how: Any) -> Any:
        result = run(*what, **how)
        return lost(result) if result in registered[:1] else result

    monkeypatch.setattr(workers, "register", note)
    monkeypatch.setattr(store, "run", lose_the_first)
    await app.start("worker")
    await app.stop()

    assert len(registered) == 2


def lost(_result: Any) -> Any:
    raise StoreUnavailable("the connection died, and the answer with it")


def unavailable(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("away")
