from __future__ import annotations

import asyncio
import threading

import pytest

from trax.errors import RunCancelled, RunInterrupted, UnexpectedCancellation
from trax.train import (
    Cancel,
    Cancellation,
    Cancelled,
    Done,
    Failed,
    Interrupted,
    junction,
    short_circuit,
    train,
)


class Signals:
    """Where a junction tells that it was reached, and waits to be let on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ran: list[str] = []


@junction
async def pause(signals: Signals) -> None:
    signals.ran.append("pause")
    signals.reached.set()
    await signals.go_on.wait()


@junction
async def after(signals: Signals) -> str:
    signals.ran.append("after")
    return "done"


paused = train("paused", pause >> after)


@pytest.fixture
def token() -> Cancellation:
    return Cancellation()


async def test_a_token_cancelled_before_the_start_runs_no_junction(token: Cancellation) -> None:
    signals = Signals()
    token.cancel("not today")

    with pytest.raises(RunCancelled, match="not today"):
        await paused.run(signals, cancellation=token)
    assert await paused.attempt(signals, cancellation=token) == Cancelled("not today")
    assert signals.ran == []


async def test_a_token_cancelled_inside_a_junction_stops_before_the_next(token: Cancellation) -> None:
    signals = Signals()

    @junction
    async def work(signals: Signals, token: Cancellation) -> None:
        signals.ran.append("work")
        token.cancel("enough")

    outcome = await train("work", work >> after).attempt(signals, cancellation=token)

    assert outcome == Cancelled("enough")
    assert signals.ran == ["work"]


async def test_a_waiting_junction_is_interrupted(token: Cancellation) -> None:
    signals = Signals()
    task = asyncio.create_task(paused.attempt(signals, cancellation=token))
    await signals.reached.wait()

    token.cancel("stop waiting")

    assert await task == Cancelled("stop waiting")
    assert task.cancelling() == 0


async def test_a_token_may_be_used_from_any_thread(token: Cancellation) -> None:
    signals = Signals()
    task = asyncio.create_task(paused.attempt(signals, cancellation=token))
    await signals.reached.wait()

    await asyncio.to_thread(token.cancel, "from a thread")

    assert await task == Cancelled("from a thread")


async def test_an_interrupted_run_raises_with_the_reason(token: Cancellation) -> None:
    signals = Signals()
    task = asyncio.create_task(paused.run(signals, cancellation=token))
    await signals.reached.wait()

    token.interrupt("deploying")

    with pytest.raises(RunInterrupted, match="deploying"):
        await task


async def test_the_first_request_wins(token: Cancellation) -> None:
    token.interrupt("deploying")
    token.cancel("too late")

    assert await paused.attempt(Signals(), cancellation=token) == Interrupted("deploying")


async def test_a_token_cancelled_after_the_last_junction_changes_nothing(token: Cancellation) -> None:
    @junction
    async def last(signals: Signals, token: Cancellation) -> str:
        signals.ran.append("last")
        token.cancel()
        return "done"

    assert await train("last", last).attempt(Signals(), cancellation=token) == Done("done")
    await asyncio.sleep(0)  # a late delivery would hit this task here
    assert _task().cancelling() == 0


async def test_a_late_cancel_never_hits_the_code_around_the_run(token: Cancellation) -> None:
    whole = train("after", after)

    assert await whole.run(Signals(), cancellation=token) == "done"
    token.cancel()

    await asyncio.sleep(0)
    assert _task().cancelling() == 0


async def test_cancelling_the_task_itself_is_never_an_outcome() -> None:
    signals = Signals()
    task = asyncio.create_task(paused.attempt(signals))
    await signals.reached.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_the_task_beats_the_token(token: Cancellation) -> None:
    signals = Signals()
    task = asyncio.create_task(paused.attempt(signals, cancellation=token))
    await signals.reached.wait()

    token.cancel()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_cancelled_before_it_began_stays_cancelled(token: Cancellation) -> None:
    async def around() -> object:
        _task().cancel()
        return await paused.attempt(Signals(), cancellation=token)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(around())


async def test_a_timeout_around_a_run_works_as_usual() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await paused.attempt(Signals())


async def test_a_stray_cancelled_error_fails_the_run() -> None:
    @junction
    async def stray(_signals: Signals) -> None:
        raise asyncio.CancelledError

    outcome = await train("stray", stray).attempt(Signals())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UnexpectedCancellation)
    with pytest.raises(UnexpectedCancellation, match="nobody cancelled the run"):
        await train("stray", stray).run(Signals())


async def test_a_junction_that_swallows_the_cancellation_is_not_followed_by_another(
    token: Cancellation,
) -> None:
    @junction
    async def stubborn(signals: Signals) -> None:
        signals.reached.set()
        try:
            await signals.go_on.wait()
        except asyncio.CancelledError:
            signals.ran.append("swallowed")

    signals = Signals()
    task = asyncio.create_task(train("stubborn", stubborn >> after).attempt(signals, cancellation=token))
    await signals.reached.wait()
    token.cancel("stop")

    assert await task == Cancelled("stop")
    assert signals.ran == ["swallowed"]
    assert task.cancelling() == 0


async def test_a_junction_may_cancel_its_own_run() -> None:
    @junction
    async def give_up(_signals: Signals) -> None:
        raise Cancel("nothing to do")

    assert await train("give_up", give_up).attempt(Signals()) == Cancelled("nothing to do")
    with pytest.raises(RunCancelled, match="nothing to do"):
        await train("give_up", give_up).run(Signals())


async def test_a_short_circuit_does_not_swallow_a_cancellation(token: Cancellation) -> None:
    @junction
    async def give_up(_signals: Signals) -> str:
        raise Cancel("nothing to do")

    assert await train("a", short_circuit(give_up) >> after).attempt(Signals()) == Cancelled("nothing to do")

    @junction
    async def wait(signals: Signals) -> str:
        signals.reached.set()
        await signals.go_on.wait()
        return "never"

    signals = Signals()
    task = asyncio.create_task(train("b", short_circuit(wait) >> after).attempt(signals, cancellation=token))
    await signals.reached.wait()
    token.cancel("stop")
    assert await task == Cancelled("stop")
    assert signals.ran == []


async def test_a_child_with_the_same_token_stops_with_its_parent(token: Cancellation) -> None:
    @junction
    async def parent(signals: Signals, token: Cancellation) -> str:
        outcome = await paused.attempt(signals, cancellation=token)
        signals.ran.append(f"child {outcome}")
        return "parent"

    signals = Signals()
    task = asyncio.create_task(train("parent", parent).attempt(signals, cancellation=token))
    await signals.reached.wait()
    token.cancel("both")

    assert await task == Cancelled("both")
    assert task.cancelling() == 0
    assert signals.ran == ["pause"]


async def test_one_token_stops_several_runs(token: Cancellation) -> None:
    first, second = Signals(), Signals()
    tasks = [asyncio.create_task(paused.attempt(each, cancellation=token)) for each in (first, second)]
    await first.reached.wait()
    await second.reached.wait()

    token.cancel("all")

    assert await asyncio.gather(*tasks) == [Cancelled("all"), Cancelled("all")]


def test_a_cancellation_after_the_loop_is_closed_is_harmless(token: Cancellation) -> None:
    bonds = asyncio.run(_left_bound(token))

    token.cancel()

    assert token.requested
    assert bonds


async def _left_bound(token: Cancellation) -> object:
    return token.bind()


def test_a_blocking_run_checks_the_token_before_each_junction(token: Cancellation) -> None:
    ran: list[str] = []

    @junction
    def first(number: int, token: Cancellation) -> str:
        ran.append("first")
        token.interrupt("later")
        return str(number)

    @junction
    def second(text: str) -> str:
        ran.append(text)
        return text

    assert train("two", first >> second).attempt_blocking(1, cancellation=token) == Interrupted("later")
    assert ran == ["first"]


def test_a_synchronous_junction_may_ask_whether_to_stop(token: Cancellation) -> None:
    @junction
    def poll(number: int, token: Cancellation) -> int:
        token.raise_if_requested()
        token.cancel("asked")
        token.raise_if_requested()
        return number

    assert train("poll", poll).attempt_blocking(1, cancellation=token) == Cancelled("asked")


def test_a_stray_cancelled_error_in_a_blocking_run_fails_it() -> None:
    @junction
    def stray(number: int) -> int:
        raise asyncio.CancelledError(number)

    outcome = train("stray", stray).attempt_blocking(1)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UnexpectedCancellation)


def test_a_token_shows_its_request(token: Cancellation) -> None:
    assert repr(token) == "<Cancellation, not requested>"
    assert token.reason is None

    token.cancel("why")

    assert repr(token) == "<Cancellation 'why'>"
    assert (token.requested, token.reason) == (True, "why")


def test_concurrent_cancellations_keep_one_reason(token: Cancellation) -> None:
    start = threading.Barrier(8)
    reasons = [f"thread {number}" for number in range(8)]

    def wish(reason: str) -> None:
        start.wait()
        token.cancel(reason)

    threads = [threading.Thread(target=wish, args=(reason,)) for reason in reasons]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert token.reason in reasons


def _task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


def test_a_signal_can_cancel_a_token_during_the_start_of_another_run(token: Cancellation) -> None:
    def as_a_signal_would() -> None:
        with Cancellation._lock:  # pyright: ignore[reportPrivateUsage]
            token.cancel("signalled")

    thread = threading.Thread(target=as_a_signal_would, daemon=True)
    thread.start()
    thread.join(30)

    assert token.reason == "signalled"
