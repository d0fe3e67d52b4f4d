from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import until

from trax import InvalidInput, Metadata, RunCancelled, Trax, current, junction
from trax.records import State
from trax.store.runs import metadata
from trax.testing import Harness

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
async def h(url: str) -> AsyncGenerator[Harness]:
    async with Harness(Trax(url)) as harness:
        yield harness


async def record(app: Trax) -> Metadata:
    """The run this code is part of, as its record stands."""
    run = current()
    assert run
    return await app.executions.get(run.metadata_id)


async def newest(app: Trax) -> Metadata:
    (run,) = await app.executions.list(limit=1)
    return run


async def run(h: Harness, train: Any, value: Any, *, queued: bool) -> None:
    if queued:
        await h.app.queue(train, value)
        await h.run_until_idle()
    else:
        await h.app.run(train, value)


def watched(h: Harness, seen: list[Metadata]) -> Any:
    """Two junctions that look at their own record while they run."""

    @junction
    async def extract(number: int) -> str:
        await h.cycle("run_log")
        seen.append(await record(h.app))
        return str(number)

    @junction
    async def load(text: str) -> int:
        await h.cycle("run_log")
        seen.append(await record(h.app))
        return int(text)

    return h.app.train("watched", extract >> load)


@pytest.mark.parametrize("queued", [False, True])
async def test_the_record_shows_which_junction_runs(h: Harness, queued: bool) -> None:
    seen: list[Metadata] = []
    train = watched(h, seen)

    await run(h, train, 1, queued=queued)

    assert [one.current_junction for one in seen] == ["extract", "load"]
    for one in seen:
        assert one.junction_started_at
        assert timedelta() <= h.now - one.junction_started_at < timedelta(minutes=1)
    ended = await newest(h.app)
    assert (ended.state, ended.current_junction, ended.junction_started_at) == (State.COMPLETED, None, None)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_record_keeps_the_duration_of_each_junction(h: Harness, queued: bool) -> None:
    train = watched(h, [])

    await run(h, train, 1, queued=queued)

    ended = await newest(h.app)
    extract, load = ended.junctions
    assert (extract.name, load.name) == ("extract", "load")
    assert ended.started_at
    assert ended.started_at <= extract.started_at < load.started_at
    assert (load.started_at - extract.started_at).total_seconds() == pytest.approx(
        extract.duration.total_seconds(), abs=1e-5
    )
    assert load.duration > timedelta()


async def test_a_run_that_fails_keeps_the_timings_up_to_there(h: Harness) -> None:
    @junction
    def first(number: int) -> str:
        return str(number)

    @junction
    def second(text: str) -> int:
        raise ValueError(text)

    @junction
    def third(number: int) -> float:
        return number

    train = h.app.train("failing", first >> second >> third)

    with pytest.raises(ValueError, match="1"):
        await h.app.run(train, 1)

    assert [one.name for one in (await newest(h.app)).junctions] == ["first", "second"]


async def test_junction_progress_can_be_switched_off(url: str) -> None:
    async with Harness(Trax(url, junction_progress=False)) as h:
        seen: list[Metadata] = []
        train = watched(h, seen)

        await h.app.run(train, 1)

        assert [one.current_junction for one in seen] == [None, None]
        assert (await newest(h.app)).junctions == ()


@pytest.mark.parametrize("queued", [False, True])
async def test_a_run_reports_its_progress(h: Harness, queued: bool) -> None:
    seen: list[tuple[float | None, str | None]] = []

    @h.app.train
    async def work(_: int) -> None:
        at = current()
        assert at
        for done in range(1, 4):
            await at.progress(done / 4, f"{done} of 4 files")
        await h.cycle("run_log")
        shown = await record(h.app)
        seen.append((shown.progress, shown.progress_message))
        await at.progress(1.0)

    await run(h, work, 1, queued=queued)

    ended = await newest(h.app)
    assert seen == [(0.75, "3 of 4 files")]
    assert (ended.progress, ended.progress_message) == (1.0, None)


async def test_synchronous_code_reports_its_progress(h: Harness) -> None:
    @h.app.train
    def work(_: int) -> None:
        at = current()
        assert at
        at.sync.progress(0.5, "half")

    await run(h, work, 1, queued=True)

    assert ((await newest(h.app)).progress, (await newest(h.app)).progress_message) == (0.5, "half")


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "half", True])
async def test_progress_is_a_number_from_0_to_1(h: Harness, wrong: Any) -> None:
    @h.app.train
    async def work(_: int) -> None:
        at = current()
        assert at
        await at.progress(wrong)

    with pytest.raises(InvalidInput, match="progress must be a number from 0 to 1"):
        await h.app.run(work, 1)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_run_requested_to_cancel_starts_no_further_junction(
    h: Harness,
    queued: bool,
    is_sync: bool,
) -> None:
    begun: list[str] = []
    loop = asyncio.get_running_loop()

    async def ask_to_stop() -> None:
        runs = await h.app.executions.list(state="in_progress")
        await h.app.executions.cancel(run.id for run in runs)

    @junction
    async def first(number: int) -> str:
        begun.append("first")
        await ask_to_stop()
        return str(number)

    @junction
    def first_blocking(number: int) -> str:
        begun.append("first")
        asyncio.run_coroutine_threadsafe(ask_to_stop(), loop).result(30)
        return str(number)

    @junction
    def second(text: str) -> int:
        begun.append("second")
        return int(text)

    train = h.app.train("stopped", (first_blocking if is_sync else first) >> second)

    if queued:
        await run(h, train, 1, queued=True)
    else:
        with pytest.raises(RunCancelled, match="cancelled by request"):
            await run(h, train, 1, queued=False)

    ended = await newest(h.app)
    assert begun == ["first"]
    assert (ended.state, ended.current_junction) == (State.CANCELLED, None)
    assert ended.failure_reason == "cancelled by request"


async def test_a_cancellation_from_another_server_reaches_a_direct_run(tmp_path: Any) -> None:
    address = f"sqlite:///{tmp_path}/trax.db"
    here, elsewhere = Trax(address), Trax(address)
    started = asyncio.Event()

    @here.train
    async def wait(_: int) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Harness(here) as h:
        running = asyncio.create_task(here.run(wait, 1))
        await started.wait()
        (waiting,) = await elsewhere.executions.list()
        await elsewhere.executions.cancel([waiting.id])
        await h.cycle("run_log")

        with pytest.raises(RunCancelled, match="cancelled by request"):
            await running
        assert (await newest(here)).state is State.CANCELLED
    elsewhere.close()


async def test_a_cancellation_from_the_same_process_reaches_a_direct_run_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_started = SimpleNamespace(monotonic=lambda: 1.0, time=time.time)  # a machine, a second ago
    monkeypatch.setattr("trax.worker.run_log.time", just_started)
    app = Trax(url, heartbeat_interval=timedelta(hours=1), worker_lost_after=timedelta(hours=2))
    started = asyncio.Event()

    @app.train
    async def wait(_: int) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(app.run(wait, 1))
    await started.wait()
    await app.executions.cancel([(await newest(app)).id])

    async with asyncio.timeout(30):
        with pytest.raises(RunCancelled, match="cancelled by request"):
            await running
    app.close()


async def test_a_run_that_blocks_its_event_loop_still_shows_where_it_is(url: str) -> None:
    app = Trax(url)
    go_on = threading.Event()

    @app.train
    async def stuck(_: int) -> None:
        go_on.wait(60)

    store = await app.context.store.open()
    running = threading.Thread(target=lambda: app.sync.run(stuck, 1))
    running.start()

    def shown() -> bool:
        found = store.read(metadata.get, 1)
        return found is not None and found.current_junction == "stuck"

    await asyncio.to_thread(until, shown)
    go_on.set()
    await asyncio.to_thread(running.join)

    assert (await newest(app)).state is State.COMPLETED
    app.close()
