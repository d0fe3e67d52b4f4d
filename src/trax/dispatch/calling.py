"""One call of a submitter: for so long and no longer, and whatever happens is an answer."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from trax.dispatch.submit import Answer, Refused, Submission, Submitter, one_answer_each

if TYPE_CHECKING:
    from collections.abc import Sequence


class Call:
    """A call that is under way from the moment it is made.

    Code that hangs cannot be stopped for sure, so there are two ends: `answers` comes in time, and `ended`
    when the submitter has really let go. Until then the call keeps its place among those allowed at once, and
    a submitter that hangs for ever holds up nobody but itself.
    """

    def __init__(self, submitter: Submitter, batch: Sequence[Submission]) -> None:
        self._submitter = submitter
        self._batch = batch
        begin = _task if inspect.iscoroutinefunction(submitter.submit) else _thread
        self._work: asyncio.Future[Any] = begin(submitter, batch)

    async def answers(self, seconds: float | None) -> list[Answer]:
        try:
            await asyncio.wait([self._work], timeout=seconds)
        finally:
            is_late = not self._work.done()
            if is_late and isinstance(self._work, asyncio.Task):
                self._work.cancel()
        if is_late:
            return [TimeoutError(f"not handed over within {seconds:g} s")] * len(self._batch)
        return self._said()

    async def ended(self) -> None:
        if not self._work.done():
            await asyncio.wait([self._work])
        if not self._work.cancelled():
            self._work.exception()  # looked at, so that asyncio does not complain of a late one

    def _said(self) -> list[Answer]:
        try:
            said = self._work.result()
        except asyncio.CancelledError:
            return [RuntimeError("the submitter cancelled its own call")] * len(self._batch)
        except Exception as error:  # noqa: BLE001 - it is the answer
            return [error] * len(self._batch)
        return one_answer_each(self._submitter.name, said, self._batch)


def _task(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    async def call() -> Any:
        return await _any(submitter.submit(batch))

    return asyncio.create_task(call(), name=f"trax submit to {submitter.name}")


def _thread(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    """A thread of its own: one that hangs must not take one of those that trains run in."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            said: Any = submitter.submit(batch)
        except BaseException as error:  # noqa: BLE001 - it is the answer, also when it wants to end the thread
            said = [error if isinstance(error, Exception) else Refused(repr(error))] * len(batch)
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(_set, future, said)

    name = f"trax-submit-{submitter.name}"
    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return future


def _set(future: asyncio.Future[Any], said: Any) -> None:
    if not future.done():
        future.set_result(said)


async def _any(said: Any) -> Any:
    return await said
