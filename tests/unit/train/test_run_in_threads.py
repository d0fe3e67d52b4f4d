from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from queue import SimpleQueue
from threading import Thread, current_thread

import pytest
from tests.support.waiting import until

from trax.errors import UnexpectedCancellation
from trax.train import Cancellation, Cancelled, Failed, Run, current, enter_run, junction, train
from trax.train.context import DaemonThreads

colour: ContextVar[str] = ContextVar("colour", default="none")


class Gate:
    """A synchronous junction tells that it was reached, and waits to be let on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.ended: list[str] = []


@junction
def block(gate: Gate) -> int:
    gate.reached.set()
    gate.go_on.wait()
    gate.ended.append("block")
    return threading.get_ident()


@junction
def ident(number: int) -> tuple[int, bool]:
    return threading.get_ident(), number == threading.get_ident()


@junction
async def pass_on(number: int) -> str:
    return str(number)


only_sync = train("only_sync", block)
mixed = train("mixed", block >> pass_on)


async def test_a_synchronous_route_makes_one_hop() -> None:
    gate = Gate()
    gate.go_on.set()

    thread, is_same = await train("hop", block >> ident).run(gate)

    assert is_same
    assert thread != threading.get_ident()


async def test_a_synchronous_junction_of_a_mixed_route_does_not_block_the_loop() -> None:
    gate = Gate()
    task = asyncio.create_task(mixed.run(gate))
    await asyncio.to_thread(gate.reached.wait)

    gate.go_on.set()

    assert await task != str(threading.get_ident())


@pytest.mark.parametrize("route", ["sync", "mixed"])
async def test_context_variables_reach_the_thread(route: str) -> None:
    @junction
    def look(number: int) -> str:
        return f"{colour.get()} {number}"

    @junction
    async def keep(text: str) -> str:
        return text

    colour.set("red")
    run = Run(metadata_id=1, external_id="0" * 32, train="look")

    @junction
    def whose(text: str) -> bool:
        return current() is run and text.startswith("red")

    whole = train("look", look >> whose) if route == "sync" else train("look", look >> keep >> whose)
    with enter_run(run):
        assert await whole.run(1)
    assert current() is None


@pytest.mark.parametrize("whole", [only_sync, mixed], ids=["sync", "mixed"])
async def test_a_cancelled_run_waits_for_its_thread_and_ends_as_cancelled(whole: object) -> None:
    gate, token = Gate(), Cancellation()
    task = asyncio.create_task(_attempt(whole, gate, token))
    await asyncio.to_thread(gate.reached.wait)

    token.cancel("stop")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    gate.go_on.set()

    assert await task == Cancelled("stop")
    assert gate.ended == ["block"]


@pytest.mark.parametrize("whole", [only_sync, mixed], ids=["sync", "mixed"])
async def test_a_cancelled_task_requests_and_awaits_its_thread_and_stays_cancelled(whole: object) -> None:
    gate, token = Gate(), Cancellation()
    task = asyncio.create_task(_attempt(whole, gate, token))
    await asyncio.to_thread(gate.reached.wait)

    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert token.requested
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    gate.go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ended == ["block"]


async def test_a_junction_without_a_thread_is_dropped_when_it_is_cancelled() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
    busy, waiting, token = Gate(), Gate(), Cancellation()
    first = asyncio.create_task(only_sync.run(busy))
    while not busy.reached.is_set():  # noqa: ASYNC110 - the only thread is taken, none is left to wait in
        await asyncio.sleep(0)
    second = asyncio.create_task(only_sync.attempt(waiting, cancellation=token))
    await asyncio.sleep(0)

    token.cancel("not begun")

    assert await second == Cancelled("not begun")
    busy.go_on.set()
    await first
    assert waiting.ended == []


async def test_a_stop_iteration_from_a_thread_is_a_failure_like_any_other() -> None:
    @junction
    def run_out(gate: Gate) -> int:
        return next(iter([len(gate.ended)][:0]))

    for whole in (train("sync", run_out), train("mixed", run_out >> pass_on)):
        outcome = await whole.attempt(Gate())
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, StopIteration)


async def test_a_stray_cancelled_error_in_a_thread_fails_the_run() -> None:
    @junction
    def stray(gate: Gate) -> int:
        raise asyncio.CancelledError(gate)

    for whole in (train("sync", stray), train("mixed", stray >> pass_on)):
        outcome = await whole.attempt(Gate())
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, UnexpectedCancellation)


async def _attempt(whole: object, gate: Gate, token: Cancellation) -> object:
    assert whole in (only_sync, mixed)
    return await (only_sync if whole is only_sync else mixed).attempt(gate, cancellation=token)


async def test_an_abandoned_run_does_not_wait_for_its_thread() -> None:
    gate, token = Gate(), Cancellation()
    task = asyncio.create_task(_attempt(only_sync, gate, token))
    await asyncio.to_thread(gate.reached.wait)

    token.interrupt("stop")
    await asyncio.sleep(0)
    token.abandon("stop")
    async with asyncio.timeout(30):
        await asyncio.wait([task])

    assert gate.ended == []
    gate.go_on.set()


def test_threads_are_used_again_and_end_when_they_are_closed() -> None:
    threads, used = DaemonThreads("test-threads"), SimpleQueue[Thread]()

    threads.start(lambda: used.put(current_thread()))
    until(lambda: threads.idle == 1)
    threads.start(lambda: used.put(current_thread()))
    names = {used.get(timeout=30), used.get(timeout=30)}
    gates = [Gate() for _ in range(3)]
    passed = SimpleQueue[bool]()
    for gate in gates:
        threads.start(lambda gate=gate: passed.put(gate.go_on.wait(30)))
    for gate in gates:
        gate.go_on.set()

    assert len(names) == 1
    assert all(thread.daemon for thread in names)
    assert [passed.get(timeout=30) for _ in gates] == [True, True, True]
    threads.shutdown()
    for thread in names:
        thread.join(30)
        assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        threads.start(print)
