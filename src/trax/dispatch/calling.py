"""Call a submitter with a timeout; every failure becomes a result for each run."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from contextvars import copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from trax.dispatch.submit import Refused, Submission, SubmissionResult, Submitter, validate_results

if TYPE_CHECKING:
    from collections.abc import Sequence


class SubmitCall:
    """A call of a submitter; it starts when the object is created.

    Code that hangs cannot be stopped reliably, so there are two ends: `results` returns in time, and
    `wait_until_done` when the submitter has really returned. Until then the call counts as one of those
    allowed at once, so a submitter that hangs blocks only itself.
    """

    def __init__(self, submitter: Submitter, batch: Sequence[Submission]) -> None:
        self._submitter = submitter
        self._batch = batch
        begin = _start_task if inspect.iscoroutinefunction(submitter.submit) else _start_thread
        self._work: asyncio.Future[Any] = begin(submitter, batch)

    async def results(self, seconds: float | None) -> list[SubmissionResult]:
        try:
            await asyncio.wait([self._work], timeout=seconds)
        finally:
            is_late = not self._work.done()
            if is_late and isinstance(self._work, asyncio.Task):
                self._work.cancel()
        if is_late:
            return [TimeoutError(f"not handed over within {seconds:g} s")] * len(self._batch)
        return self._read_results()

    async def wait_until_done(self) -> None:
        if not self._work.done():
            await asyncio.wait([self._work])
        if not self._work.cancelled():
            self._work.exception()  # retrieve it, or asyncio logs "exception was never retrieved"

    def _read_results(self) -> list[SubmissionResult]:
        try:
            returned = self._work.result()
        except asyncio.CancelledError:
            return [RuntimeError("the submitter cancelled its own call")] * len(self._batch)
        except Exception as error:  # noqa: BLE001 - it is the result
            return [error] * len(self._batch)
        return validate_results(self._submitter.name, returned, self._batch)


def _start_task(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    async def call() -> Any:
        return await _await(submitter.submit(batch))

    return asyncio.create_task(call(), name=f"trax submit to {submitter.name}")


def _start_thread(submitter: Submitter, batch: Sequence[Submission]) -> asyncio.Future[Any]:
    """Call it in a new thread: a call that hangs must not block a thread in which trains run."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        try:
            returned: Any = submitter.submit(batch)
        except BaseException as error:  # noqa: BLE001 - it is the result, also SystemExit
            returned = [error if isinstance(error, Exception) else Refused(repr(error))] * len(batch)
        with suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(_set_result, future, returned)

    name = f"trax-submit-{submitter.name}"
    Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
    return future


def _set_result(future: asyncio.Future[Any], returned: Any) -> None:
    if not future.done():
        future.set_result(returned)


async def _await(awaitable: Any) -> Any:
    return await awaitable
