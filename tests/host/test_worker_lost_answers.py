"""The answer to a commit of a worker is lost: its orphans are released, and results counted once."""

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


class LostAnswerSetup:
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
async def setup(url: str) -> AsyncGenerator[LostAnswerSetup]:
    app = Trax(url, local_worker_count=2)

    async def work(name: str) -> str:
        return await yards[0].work(name)

    def hear(record: Metadata, *_: object) -> None:
        yards[0].heard.append(record.state)

    app.train(retry=Retry(max_retries=3, delay=timedelta(0)), on_completed=hear, on_failed=hear)(work)
    async with Harness(app) as h:
        store = await app.context.store.open()
        yards = [LostAnswerSetup(h, store, await Worker.start(app.context, store))]
        yield yards[0]
        await yards[0].worker.drain(0)
        await yards[0].worker.unregister()


async def test_a_claim_whose_answer_was_lost_goes_back_to_the_queue_uncounted(
    setup: LostAnswerSetup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.queue("Ada")
    with setup.answers(lost), pytest.raises(StoreUnavailable):
        await setup.worker.claim()
    assert await setup.states() == [State.IN_PROGRESS]

    await setup.beat(2)

    (stray,) = await setup.records()
    (entry,) = await setup.app.work_queue.list()
    assert (stray.state, stray.failure_exception) == (State.CANCELLED, "Interrupted")
    assert (entry.status, setup.ran) == (QueueStatus.QUEUED, [])
    assert f"holds runs [{stray.id}] without running them" in caplog.text
    await setup.h.run_until_idle()
    (_, again) = await setup.records()
    assert (again.state, again.attempt, setup.ran) == (State.COMPLETED, 1, ["Ada"])


async def test_a_run_admitted_and_claimed_at_once_is_released_after_a_lost_answer(
    setup: LostAnswerSetup,
) -> None:
    await setup.app.queue("work", "Ada")
    visit: Any = partial(setup.store.call, dispatch_now, setup.store, setup.app.context)
    with setup.answers(lost), pytest.raises(StoreUnavailable):
        await setup.worker.dispatch_and_claim(visit)
    assert await setup.states() == [State.IN_PROGRESS]

    await setup.beat(2)
    await setup.h.run_until_idle()

    assert await setup.states() == [State.CANCELLED, State.COMPLETED]


async def test_the_manifest_of_such_a_run_is_not_held_up_and_counts_no_failure(url: str) -> None:
    app = Trax(url)

    @app.train
    async def work(_name: str) -> None: ...

    app.schedule(work, "daily", "Ada", every(days=1))
    async with Harness(app) as h:
        store = await app.context.store.open()
        setup = LostAnswerSetup(h, store, await Worker.start(app.context, store))
        await h.cycle("manifest_manager")
        await h.cycle("job_dispatcher")
        with setup.answers(lost), pytest.raises(StoreUnavailable):
            await setup.worker.claim()

        await setup.beat(2)
        await h.run_until_idle()

        assert await setup.states() == [State.CANCELLED, State.COMPLETED]
        assert (await app.manifests.get("daily")).failure_count == 0
        await setup.worker.unregister()


async def test_a_cancelled_orphan_is_not_run_again(setup: LostAnswerSetup) -> None:
    await setup.queue("Ada")
    with setup.answers(lost), pytest.raises(StoreUnavailable):
        await setup.worker.claim()
    (stray,) = await setup.records()
    await setup.store.call(rescue.request_cancel, [stray.id])

    await setup.beat(2)
    await setup.h.run_until_idle()

    (stray,) = await setup.records()
    reason = "cancelled by request before it started"
    assert (stray.state, stray.failure_reason, setup.ran) == (State.CANCELLED, reason, [])


async def test_a_run_that_runs_or_waits_for_a_slot_is_no_orphan(setup: LostAnswerSetup) -> None:
    setup.go_on.clear()
    await setup.queue("one", "two", "three")
    await setup.worker.claim()
    setup.worker._pool.resize(3)  # pyright: ignore[reportPrivateUsage]
    await setup.worker.claim()

    await setup.beat(3)
    setup.go_on.set()
    await setup.drain()

    assert await setup.states() == [State.COMPLETED] * 3


async def test_an_ended_run_with_an_unwritten_result_is_no_orphan(
    setup: LostAnswerSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.queue("Ada")
    await setup.worker.claim()
    with monkeypatch.context() as away:
        refuse_results(away, lambda _: StoreUnavailable("away"))
        with pytest.raises(StoreUnavailable):
            await setup.drain()

    await setup.beat(3)

    assert await setup.states() == [State.COMPLETED]


async def test_a_run_whose_result_is_being_written_is_no_orphan(setup: LostAnswerSetup) -> None:
    pause = Pause()
    await setup.queue("Ada")
    await setup.worker.claim()
    await setup.worker._pool.wait_until_idle()  # pyright: ignore[reportPrivateUsage]
    with setup.answers(pause):
        flushing = asyncio.create_task(setup.worker.flush())
        await asyncio.to_thread(pause.reached.wait, 30)
    known = setup.worker._run_ids()  # pyright: ignore[reportPrivateUsage]
    pause.over.set()

    assert await flushing == 1
    assert known == [record.id for record in await setup.records()]


async def test_a_run_of_a_slow_claim_is_no_orphan(setup: LostAnswerSetup) -> None:
    pause = Pause()
    await setup.queue("Ada")
    with setup.answers(pause):
        claiming = asyncio.create_task(setup.worker.claim())
        await asyncio.to_thread(pause.reached.wait, 30)
    await setup.beat(3)
    pause.over.set()
    assert await claiming == 1
    await setup.beat(3)
    await setup.drain()

    assert (await setup.states(), setup.ran) == ([State.COMPLETED], ["Ada"])


@pytest.mark.parametrize(("name", "state"), [("Ada", State.COMPLETED), ("fail", State.FAILED)])
async def test_a_result_that_was_already_written_is_reported_once_without_an_alarm(
    setup: LostAnswerSetup, name: str, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.queue(name)
    await setup.worker.claim()
    with setup.answers(lost), pytest.raises(StoreUnavailable):
        await setup.drain()
    assert await setup.states() == [state]

    assert await setup.worker.flush() == 1
    await setup.worker._results.wait_for_hooks()  # pyright: ignore[reportPrivateUsage]

    (entry,) = await setup.app.work_queue.list()
    assert (await setup.states(), setup.heard) == ([state], [state])
    assert entry.status is (QueueStatus.QUEUED if state is State.FAILED else QueueStatus.DISPATCHED)
    assert "too late" not in caplog.text


async def test_a_worker_whose_registration_got_no_answer_registers_again(
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
