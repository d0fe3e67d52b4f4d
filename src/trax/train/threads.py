"""Synchronous code in an async run: one hop to a thread, and no leaving it alone there."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from trax.train.cancellation import Cancellation

_threads: ContextVar[Executor | None] = ContextVar("trax_threads", default=None)


def use_threads(executor: Executor) -> None:
    """Let what runs in this context take its threads here, not from the loop's few of its own."""
    _threads.set(executor)


class Returned(NamedTuple):
    """What a call ended with. A future cannot carry every exception: StopIteration would hang it."""

    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def in_thread(call: Callable[[], Any], token: Cancellation) -> Returned:
    """Run a call in a thread, with the context variables of this task.

    A running thread cannot be stopped. When this task is cancelled meanwhile, the token asks the call to
    stop, and the cancellation goes on only when the call has ended. A call that no thread took up yet is
    dropped.
    """
    claim = Lock()
    work = partial(_claimed, claim, call)
    future = asyncio.get_running_loop().run_in_executor(_threads.get(), copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
            token.cancel("the task around the run was cancelled")
            if claim.acquire(blocking=False):
                break
    if cancelled is not None:
        raise cancelled
    return future.result()


def _claimed(claim: Lock, call: Callable[[], Any]) -> Returned:
    """Run the call unless the waiting side gave it up: whoever takes the claim first decides."""
    if not claim.acquire(blocking=False):
        return Returned()
    try:
        return Returned(call())
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised on the other side
        return Returned(error=error)
