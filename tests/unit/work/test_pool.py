from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from trax.errors import RunTimedOut
from trax.train import Cancellation, Done, junction, train
from trax.train.context import await_cancellable
from trax.worker import pool as pool_module
from trax.worker.deadlines import STOP_WARNING_SECONDS
from trax.worker.pool import MAX_PREFETCH, RESULTS_PER_WRITE, START_SLICE, Pool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from trax.worker.active_run import ActiveRun

colour: ContextVar[str] = ContextVar("colour", default="none")


class Job(NamedTuple):
    metadata_id: int
    timeout_seconds: float | None = None
    train: str = "work"
    external_id: str = "none"
    rank: tuple[int, int] = (0, 0)


class Station:
    """A pool whose clock moves when told, and whose jobs end when told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.began: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.execute: Callable[[Job, Cancellation], Awaitable[str]] = self.wait
        self.pools: list[Pool[Job, str]] = []
        self.told: list[int] = []
        """How many had ended each time somebody was told of endings."""
        self.short: list[int] = []
        """How many still waited in line each time it got short."""
        self.given_back: list[int] = []
        self.is_registered = True
        self.job_seconds = 0.0

    def pool(
        self, size: int, prefetch: int = 0, *, has_busy_threads: bool = True, keeps_waiting: bool = False
    ) -> Pool[Job, str]:
        pool = Pool[Job, str](
            size,
            self.execute_run,
            lambda job, error: f"{job.metadata_id} broke with {error!r}",
            on_ended=lambda: self.told.append(pool.ended_count),
            on_backlog_low=lambda: self.short.append(pool.load.prefetched),
            on_given_back=lambda jobs, _: self.given_back.extend(job.metadata_id for job in jobs),
            may_start=lambda: self.is_registered,
            has_busy_threads=lambda: has_busy_threads,
            default_timeout=lambda: 60.0,
            keeps_waiting=keeps_waiting,
            prefetch=prefetch,
            clock=lambda: self.now,
        )
        self.pools.append(pool)
        return pool

    async def execute_run(self, run: ActiveRun[Job]) -> str:
        return await self.execute(run.job, run.token)

    async def wait(self, job: Job, token: Cancellation) -> str:
        self.began.append(job.metadata_id)
        gate = self.gates.setdefault(job.metadata_id, asyncio.Event())
        try:
            await await_cancellable(token, gate.wait())
        except Exception as error:  # noqa: BLE001
            return f"{job.metadata_id} {error!r}"
        return f"{job.metadata_id} done"

    async def compute(self, job: Job, _token: Cancellation) -> str:
        """Keep the event loop busy for so long by the clock of the pool."""
        self.began.append(job.metadata_id)
        self.now += self.job_seconds
        return "done"

    def end(self, *ids: int) -> None:
        for each in ids:
            self.gates[each].set()


class FailingCall:
    """A callback with a bug: it fails that often, always without a number, and then does nothing."""

    def __init__(self, times: int | None = None) -> None:
        self._times = times

    def __call__(self) -> bool:
        if self._times == 0:
            return False
        self._times = self._times and self._times - 1
        raise RuntimeError("a bug in the pool")


@pytest.fixture
async def station() -> AsyncGenerator[Station]:
    made = Station()
    yield made
    for pool in made.pools:
        pool.close()


async def test_a_slot_that_frees_can_be_filled_at_once(station: Station) -> None:
    pool = station.pool(2)

    await pool.start([Job(1), Job(2)])
    assert (pool.free, pool.slots_to_fill, pool.active_ids) == (0, 0, {1, 2})
    station.end(1)
    await _until(lambda: pool.free == 1)

    await pool.start([Job(3)])
    assert (station.began, pool.active_ids) == ([1, 2, 3], {2, 3})
    assert pool.collect() == ["1 done"]
    assert pool.collect() == []


async def test_more_than_fits_waits_in_order_and_begins_as_slots_free(station: Station) -> None:
    pool = station.pool(1, prefetch=2)
    assert (pool.slots_to_fill, pool.backlog_to_fill) == (1, 2)

    await pool.start([Job(1), Job(2), Job(3)])
    assert (station.began, pool.slots_to_fill, pool.backlog_to_fill) == ([1], 0, 0)
    station.end(1)
    await _until(lambda: station.began == [1, 2])

    assert (pool.slots_to_fill, pool.backlog_to_fill) == (0, 1)
    assert pool.release() == [Job(3)]
    station.end(2)
    assert await pool.wait_until_idle(30)
    assert station.began == [1, 2]


async def test_a_smaller_pool_finishes_its_runs_and_starts_fewer(station: Station) -> None:
    pool = station.pool(2, prefetch=1)
    await pool.start([Job(1), Job(2), Job(3)])

    pool.resize(1)
    assert (pool.free, pool.slots_to_fill) == (0, 0)

    station.end(1)
    await _until(lambda: sorted(pool.active_ids) == [2])
    assert station.began == [1, 2]

    station.end(2)
    await _until(lambda: station.began == [1, 2, 3])
    station.end(3)
    assert await pool.wait_until_idle(30)


async def test_context_variables_of_one_run_are_not_visible_to_another(station: Station) -> None:
    async def look(job: Job, _token: Cancellation) -> str:
        seen = colour.get()
        colour.set(f"set by {job.metadata_id}")
        return seen

    station.execute = look
    pool = station.pool(1, prefetch=1)

    await pool.start([Job(1), Job(2)])
    assert await pool.wait_until_idle(30)

    assert pool.collect() == ["none", "none"]


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(3), asyncio.CancelledError()])
async def test_a_run_that_breaks_frees_its_slot_and_has_an_ending(
    station: Station, error: BaseException
) -> None:
    async def broken(_job: Job, _token: Cancellation) -> str:
        raise error

    station.execute = broken
    pool = station.pool(1)

    await pool.start([Job(1)])
    assert await pool.wait_until_idle(30)

    assert (pool.free, pool.collect()) == (1, [f"1 broke with {error!r}"])


async def test_unwritten_results_come_first_the_next_time(station: Station) -> None:
    pool = station.pool(2)
    await pool.start([Job(1), Job(2)])
    station.end(1)
    await _until(lambda: pool.free == 1)
    first = pool.collect()
    station.end(2)
    assert await pool.wait_until_idle(30)

    pool.put_back(first)

    assert pool.collect() == ["1 done", "2 done"]


async def test_a_run_is_stopped_when_its_time_is_over(station: Station) -> None:
    pool = station.pool(3)
    await pool.start([Job(1, 5.0), Job(2), Job(3, 61.0)])

    station.now = 4.9
    pool.sweep()
    assert pool.collect() == []
    station.now = 60.0
    pool.sweep()
    await _until(lambda: pool.active_ids == frozenset({3}))

    late = [f"1 {RunTimedOut('timed out after 5 s')!r}", f"2 {RunTimedOut('timed out after 1 min')!r}"]
    assert sorted(pool.collect()) == late


async def test_the_sweep_comes_by_itself(station: Station) -> None:
    pool = Pool[Job, str](
        1,
        station.execute_run,
        lambda _job, _error: "broke",
        on_ended=lambda: None,
        default_timeout=lambda: 0.001,
    )
    station.pools.append(pool)

    await pool.start([Job(1)])

    assert await pool.wait_until_idle(30)
    assert "timed out after 1 ms" in pool.collect()[0]


async def test_the_time_of_a_job_in_the_backlog_begins_when_it_does(station: Station) -> None:
    pool = station.pool(1, prefetch=1)
    await pool.start([Job(1, 100.0), Job(2, 5.0)])
    station.now = 50.0
    station.end(1)
    await _until(lambda: pool.active_ids == frozenset({2}))

    station.now = 54.0
    pool.sweep()
    await asyncio.sleep(0)
    assert pool.active_ids == {2}
    station.now = 55.0
    pool.sweep()

    assert await pool.wait_until_idle(30)


async def test_a_run_that_does_not_listen_is_named_once_and_keeps_its_slot(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def deaf(_job: Job, _token: Cancellation) -> str:
        await go_on.wait()
        return "done all the same"

    station.execute = deaf
    pool = station.pool(1)
    await pool.start([Job(7, 5.0, "stubborn")])
    for moment in (5.0, 5.0 + STOP_WARNING_SECONDS, 1000.0):
        station.now = moment
        pool.sweep()

    assert caplog.text.count("run 7 of train 'stubborn' has not stopped (timed out after 5 s)") == 1
    assert pool.free == 0
    go_on.set()
    assert await pool.wait_until_idle(30)
    assert pool.collect() == ["done all the same"]


async def test_a_cancelled_run_that_does_not_listen_is_named_too(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def deaf(_job: Job, _token: Cancellation) -> str:
        await go_on.wait()
        return "done"

    station.execute = deaf
    pool = station.pool(1)
    await pool.start([Job(1)])
    pool.cancel(1, "cancelled by request")
    station.now = STOP_WARNING_SECONDS
    pool.sweep()

    assert "has not stopped (cancelled by request)" in caplog.text
    go_on.set()
    assert await pool.wait_until_idle(30)


async def test_a_full_set_of_blocking_trains_runs_side_by_side(station: Station) -> None:
    many = 64
    meeting = threading.Barrier(many)

    @junction
    def meet(number: int) -> int:
        meeting.wait(30)
        return number

    whole = train("meet", meet)

    async def run(job: Job, token: Cancellation) -> str:
        outcome = await whole.attempt(job.metadata_id, cancellation=token)
        assert isinstance(outcome, Done)
        return str(outcome.value)

    station.execute = run
    pool = station.pool(many)

    await pool.start([Job(number) for number in range(many)])
    assert await pool.wait_until_idle(60)

    assert sorted(pool.collect()) == sorted(map(str, range(many)))


@pytest.fixture(autouse=True)
def hear_everything(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    with caplog.at_level(logging.WARNING):
        yield


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


async def test_where_jobs_are_short_as_many_wait_in_line_as_end_meanwhile(station: Station) -> None:
    pool = station.pool(8)

    pool.adjust_prefetch(0)
    assert pool.prefetch == 0

    pool.adjust_prefetch(6)
    assert (pool.prefetch, pool.slots_to_fill, pool.backlog_to_fill) == (6, 8, 6)

    pool.adjust_prefetch(0)
    assert pool.prefetch == 3, "it falls by halves"
    pool.adjust_prefetch(20)
    assert pool.prefetch == 8, "never more than there are slots"


async def test_where_all_end_before_more_come_twice_as_many_are_fetched_until_some_are_left(
    station: Station,
) -> None:
    pool = station.pool(8)

    pool.adjust_prefetch(8, ran_dry=True)
    pool.adjust_prefetch(8, ran_dry=True)
    pool.adjust_prefetch(8, ran_dry=True)
    assert pool.prefetch == 32

    pool.adjust_prefetch(30)
    assert pool.prefetch == 30, "as many as end meanwhile, above the slots too"
    for _ in range(3):
        pool.adjust_prefetch(0)
    assert pool.prefetch == 3

    for _ in range(20):
        pool.adjust_prefetch(8, ran_dry=True)
    assert pool.prefetch == MAX_PREFETCH


async def test_the_backlog_holds_no_more_work_than_ends_within_its_bound(station: Station) -> None:
    pool = station.pool(8)

    pool.adjust_prefetch(100, per_second=2_000, ran_dry=True)
    assert pool.prefetch == 100, "50 ms of work"

    pool.adjust_prefetch(100, per_second=400, ran_dry=True)
    assert pool.prefetch == 20
    pool.adjust_prefetch(20, per_second=10, ran_dry=True)
    assert pool.prefetch == 0, "jobs that take seconds are not claimed ahead"


async def test_jobs_that_wait_too_long_for_a_slot_are_given_back(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT_SECONDS", 0.0)
    pool = station.pool(1, prefetch=2)

    await pool.start([Job(1), Job(2), Job(3)])
    await _until(lambda: station.given_back == [2, 3])

    assert (pool.active_ids, pool.load.prefetched, pool.prefetch) == ({1}, 0, 0)
    station.end(1)
    assert await pool.wait_until_idle(30)
    assert station.began == [1]


async def test_jobs_that_wait_while_a_slot_is_free_are_kept(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT_SECONDS", 0.0)
    pool = station.pool(3 * START_SLICE)

    await pool.start([Job(number) for number in range(3 * START_SLICE)])

    assert (len(station.began), station.given_back) == (3 * START_SLICE, [])


async def test_jobs_that_compute_are_fetched_a_few_at_a_time(station: Station) -> None:
    station.execute = station.compute
    pool = station.pool(100)
    assert pool.slots_to_fill == 100, "nothing is known about them"

    station.job_seconds = 0.02
    await pool.start([Job(1), Job(2)])
    assert (pool.slots_to_fill, pool.free) == (2, 100), "50 ms of work"

    station.job_seconds = 9.0
    await pool.start([Job(3), Job(4)])
    assert pool.slots_to_fill == 1

    station.job_seconds = 0.0
    await pool.start([Job(5)])
    await _until(lambda: pool.slots_to_fill == 100)


async def test_a_busy_event_loop_gives_back_what_it_cannot_begin_in_time(station: Station) -> None:
    station.execute, station.job_seconds = station.compute, 0.02
    pool = station.pool(100)

    await pool.start([Job(number) for number in range(20)])
    assert await pool.wait_until_idle(30)

    assert station.began == [0, 1, 2, 3, 4, 5, 6], "100 ms, and the next two"
    assert station.given_back == [*range(7, 20)]


async def test_jobs_that_no_other_worker_would_claim_wait_without_a_limit(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_WAIT_SECONDS", 0.0)
    pool = station.pool(1, keeps_waiting=True)

    await pool.start([Job(1), Job(2)])
    station.now = 50.0
    for _ in range(5):
        await asyncio.sleep(0)

    assert (pool.load.prefetched, station.given_back) == (1, [])
    station.end(1)
    await _until(lambda: station.began == [1, 2])


async def test_an_urgent_job_goes_before_those_that_wait(station: Station) -> None:
    pool = station.pool(1, prefetch=4)
    await pool.start([Job(1), Job(2, rank=(5, 0)), Job(3)])

    pool.add([Job(4, rank=(0, 31)), Job(5)])
    assert pool.job_ids == [1, 2, 4, 3, 5]

    pool.add([Job(6, rank=(9, 0))])
    assert pool.job_ids == [1, 6, 2, 4, 3, 5]


async def test_a_job_that_waits_can_be_removed_before_it_begins(station: Station) -> None:
    pool = station.pool(1, prefetch=2)
    await pool.start([Job(1), Job(2), Job(3)])

    assert pool.remove(2) == Job(2)
    assert (pool.remove(2), pool.remove(1)) == (None, None)

    station.end(1)
    await _until(lambda: station.began == [1, 3])


async def test_a_paused_process_releases_runs_it_may_have_lost(station: Station) -> None:
    pool = station.pool(1, prefetch=1)
    await pool.start([Job(1), Job(2)])

    station.now, station.is_registered = 60.0, False
    station.end(1)
    assert await pool.wait_until_idle(30)

    assert (station.began, station.given_back) == ([1], [2])


async def test_a_registered_worker_begins_what_has_waited_for_a_busy_event_loop(station: Station) -> None:
    pool = station.pool(1, prefetch=1)
    await pool.start([Job(1), Job(2)])

    station.now = 60.0
    station.end(1)
    await _until(lambda: station.began == [1, 2])

    assert station.given_back == []


async def test_a_task_that_a_job_has_left_somewhere_runs_no_other_job(station: Station) -> None:
    left: list[Callable[..., object]] = []

    async def execute(job: Job, _token: Cancellation) -> str:
        task = asyncio.current_task()
        assert task is not None
        if job.metadata_id == 1:
            left.append(task.cancel)
        if job.metadata_id == 2:
            left.append(task.cancel)
            await asyncio.sleep(0)
        for cancel in left if job.metadata_id > 2 else ():
            cancel()
        await asyncio.sleep(0)
        return f"{job.metadata_id} done"

    station.execute = execute
    pool = station.pool(1, prefetch=20)
    await pool.start([Job(number) for number in range(1, 12)])
    assert await pool.wait_until_idle(30)

    assert pool.collect() == [f"{number} done" for number in range(1, 12)]


async def test_an_error_at_the_start_of_a_slice_does_not_stop_the_pool(
    station: Station, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    station.execute = at_once
    pool = station.pool(3 * START_SLICE)
    monkeypatch.setattr(pool, "_has_busy_threads", FailingCall())

    pool.add([Job(number) for number in range(3 * START_SLICE)])
    assert await pool.wait_until_idle(30)

    assert len(pool.collect()) == 3 * START_SLICE
    assert "a bug in the pool" in caplog.text


async def test_a_slot_that_fails_outside_of_its_jobs_is_replaced(
    station: Station, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool_module, "RESTART_SECONDS", 0.0)
    station.execute = at_once
    pool = station.pool(1)
    monkeypatch.setattr(pool, "_on_started", FailingCall(1))

    pool.add([Job(number) for number in range(3)])
    assert await pool.wait_until_idle(30)

    assert len(pool.collect()) == 2
    assert pool.job_ids == [], "its worker can tell that the first one is not running"
    assert "a slot failed outside of its jobs; another one starts" in caplog.text


async def test_a_job_now_and_then_is_nothing_to_prepare_for(station: Station) -> None:
    pool = station.pool(100)

    pool.adjust_prefetch(12)

    assert pool.prefetch == 0


async def test_a_short_backlog_is_reported_once(station: Station) -> None:
    station.execute = at_once
    pool = station.pool(100, prefetch=40)

    pool.add([Job(number) for number in range(140)])
    assert (pool.has_enough_backlog, station.short) == (True, [])
    await _until(lambda: not pool.has_enough_backlog)

    assert station.short == [40]
    assert await pool.wait_until_idle(30)
    assert len(station.short) == 1


async def test_runs_waiting_behind_full_slots_do_not_prevent_further_fetches(station: Station) -> None:
    pool = station.pool(2, prefetch=4)

    await pool.start([Job(number) for number in range(6)])
    pool.adjust_prefetch(0)

    assert (pool.load.prefetched, pool.prefetch, pool.has_enough_backlog) == (4, 2, False)
    station.end(0, 1)
    await _until(lambda: station.began == [0, 1, 2, 3])


async def test_a_pool_that_grows_begins_what_waits(station: Station) -> None:
    pool = station.pool(1, prefetch=3)
    await pool.start([Job(1), Job(2), Job(3)])
    assert station.began == [1]

    pool.resize(3)

    await _until(lambda: station.began == [1, 2, 3])


async def test_jobs_that_end_as_fast_as_they_start_are_reported_together(station: Station) -> None:
    station.execute = at_once
    pool = station.pool(1000)

    pool.add([Job(number) for number in range(150)])
    assert await pool.wait_until_idle(30)

    assert len(station.told) == 1
    assert station.told[0] > 2 * START_SLICE
    assert len(pool.collect()) == 150


async def test_many_results_are_reported_though_more_are_to_come(station: Station) -> None:
    station.execute = at_once
    pool = station.pool(1000)

    pool.add([Job(number) for number in range(900)])
    await _until(lambda: station.told)

    assert RESULTS_PER_WRITE <= station.told[0] < RESULTS_PER_WRITE + 2 * START_SLICE
    assert len(pool.collect()) >= RESULTS_PER_WRITE
    assert await pool.wait_until_idle(30)
    assert len(station.told) >= 2, "whoever came once is told again"


async def test_a_single_ended_job_is_reported_at_once(station: Station) -> None:
    pool = station.pool(10)
    await pool.start([Job(1), Job(2)])

    station.end(1)
    await _until(lambda: station.told)

    assert station.told == [1]
    assert pool.collect() == ["1 done"]
    station.end(2)
    await _until(lambda: station.told == [1, 2])


async def at_once(job: Job, token: Cancellation) -> str:  # noqa: ARG001
    return f"{job.metadata_id} done"


async def test_jobs_added_while_slices_start_wait_for_their_own_slice(station: Station) -> None:
    pool = station.pool(1000)

    for first in range(0, 400, 100):
        pool.add([Job(number) for number in range(first, first + 100)])
    turns = [0]
    while len(station.began) < 400:
        await asyncio.sleep(0)
        turns.append(pool.load.running)

    assert max(later - earlier for earlier, later in pairwise(turns)) == START_SLICE, "a slice a turn"
    station.end(*range(400))
    assert await pool.wait_until_idle(30)


@pytest.mark.parametrize(
    ("has_busy_threads", "is_waiting", "pauses"), [(True, False, 3), (False, True, 3), (False, False, 0)]
)
async def test_the_loop_pauses_between_slices_only_if_a_thread_may_need_it(
    station: Station,
    monkeypatch: pytest.MonkeyPatch,
    has_busy_threads: bool,
    is_waiting: bool,
    pauses: int,
) -> None:
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    pool = station.pool(1000, has_busy_threads=has_busy_threads)
    if is_waiting:
        pool.add([Job(0)])
        await _until(lambda: station.began)
        await asyncio.sleep(0)  # its slice is over
        made.clear()
    station.execute = at_once

    pool.add([Job(number) for number in range(1, 3 * START_SLICE + 1)])
    await _until(lambda: pool.ended_count == 3 * START_SLICE)
    await asyncio.sleep(0)

    assert len(made) == pauses
    if is_waiting:
        station.end(0)
    assert await pool.wait_until_idle(30)


class Panic(BaseException):
    """What a library written in another language raises."""


@pytest.mark.parametrize("kind", [Panic, GeneratorExit, SystemExit, KeyboardInterrupt])
async def test_no_exception_of_a_job_occupies_its_slot(station: Station, kind: type[BaseException]) -> None:
    async def execute(_job: Job, _token: Cancellation) -> str:
        raise kind("no")

    station.execute = execute
    pool = station.pool(1)

    await pool.start([Job(1), Job(2)])
    assert await pool.wait_until_idle(30)

    assert pool.collect() == [f"{number} broke with {kind('no')!r}" for number in (1, 2)]
    assert pool.free == 1


async def test_abandoned_runs_free_their_slots_and_their_late_end_is_ignored(
    station: Station,
) -> None:
    pool = station.pool(2)
    await pool.start([Job(1), Job(2), Job(3)])

    abandoned = pool.abandon_all("stop")
    station.end(1, 2)
    for _ in range(5):
        await asyncio.sleep(0)

    assert ([job.metadata_id for job in abandoned], pool.collect(), pool.active_ids) == ([1, 2], [], {3})


async def test_jobs_that_never_wait_share_a_slot_and_nothing_else(station: Station) -> None:
    seen: list[tuple[str, int]] = []

    async def execute(job: Job, _token: Cancellation) -> str:
        seen.append((colour.get(), id(asyncio.current_task())))
        colour.set(f"colour of {job.metadata_id}")
        return "done"

    station.execute = execute
    pool = station.pool(10)
    await pool.start([Job(number) for number in range(5)])
    assert await pool.wait_until_idle(30)

    assert {name for name, _ in seen} == {"none"}
    assert len({task for _, task in seen}) == 1


async def test_a_timeout_of_a_job_itself_does_not_reach_the_next_one(station: Station) -> None:
    async def execute(job: Job, _token: Cancellation) -> str:
        if job.metadata_id > 1:
            await asyncio.sleep(0)
            return "done"
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return "never"

    station.execute = execute
    pool = station.pool(1)
    await pool.start([Job(1), Job(2), Job(3)])
    assert await pool.wait_until_idle(30)

    assert pool.collect() == ["gave up", "done", "done"]


async def test_a_job_that_swallows_its_cancellation_does_not_pass_it_on(station: Station) -> None:
    async def execute(job: Job, _token: Cancellation) -> str:
        if job.metadata_id == 1:
            task = asyncio.current_task()
            assert task
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            return "swallowed"
        await asyncio.sleep(0)
        return "done"

    station.execute = execute
    pool = station.pool(1)
    await pool.start([Job(1), Job(2)])
    assert await pool.wait_until_idle(30)

    assert pool.collect() == ["swallowed", "done"]
