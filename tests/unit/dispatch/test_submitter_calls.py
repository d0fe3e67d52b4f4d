from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from trax.engine.submitter import Refused, Submission
from trax.remote.hand_over import SubmitCall

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = [Submission(metadata_id=number, external_id=str(number), train="work") for number in (1, 2)]


class Remote:
    name = "remote"

    def __init__(self, submit: Callable[[Any], Any]) -> None:
        self.submit = submit


async def test_an_async_submitter_answers() -> None:
    async def submit(batch: Any) -> list[Any]:
        return [None, Refused(f"{len(batch)} are too many")]

    call = SubmitCall(Remote(submit), BATCH)

    assert await call.results(30) == [None, Refused("2 are too many")]
    await call.wait_until_done()


async def test_a_blocking_submitter_is_called_in_another_thread() -> None:
    threads: list[str] = []

    def submit(_batch: Any) -> None:
        threads.append(threading.current_thread().name)

    call = SubmitCall(Remote(submit), BATCH)

    assert await call.results(30) == [None, None]
    assert threads == ["trax-submit-remote"]


async def test_an_error_of_an_async_submitter_is_the_answer_for_each_run() -> None:
    async def submit(_batch: Any) -> None:
        raise OSError("no route")

    answers = await SubmitCall(Remote(submit), BATCH).results(30)

    assert [repr(answer) for answer in answers] == ["OSError('no route')"] * 2


@pytest.mark.parametrize("error", [OSError("no route"), StopIteration(), SystemExit(1)])
async def test_an_error_of_a_blocking_submitter_is_the_answer_for_each_run(error: BaseException) -> None:
    def submit(_batch: Any) -> None:
        raise error

    answers = await SubmitCall(Remote(submit), BATCH).results(30)

    assert len(answers) == 2
    assert all(answer is error or isinstance(answer, Refused) for answer in answers)


async def test_a_submitter_that_cancels_itself_has_failed() -> None:
    async def submit(_batch: Any) -> None:
        raise asyncio.CancelledError

    first, _ = await SubmitCall(Remote(submit), BATCH).results(30)

    assert "cancelled its own call" in str(first)


async def test_a_late_async_submitter_is_cancelled() -> None:
    stopped = asyncio.Event()

    async def submit(_batch: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    call = SubmitCall(Remote(submit), BATCH)
    await asyncio.sleep(0)
    first, _ = await call.results(0)

    assert isinstance(first, TimeoutError)
    await call.wait_until_done()
    assert stopped.is_set()


async def test_a_late_blocking_submitter_has_ended_only_when_it_returns() -> None:
    go_on = threading.Event()

    def submit(_batch: Any) -> None:
        go_on.wait(30)

    call = SubmitCall(Remote(submit), BATCH)
    first, _ = await call.results(0)
    ended = asyncio.ensure_future(call.wait_until_done())
    await asyncio.sleep(0)

    assert isinstance(first, TimeoutError)
    assert not ended.done()
    go_on.set()
    await ended


async def test_cancelling_the_wait_cancels_the_call() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def submit(_batch: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    waiting = asyncio.ensure_future(SubmitCall(Remote(submit), BATCH).results(None))
    await begun.wait()
    waiting.cancel()

    await asyncio.wait([waiting])
    await stopped.wait()
