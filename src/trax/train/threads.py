"""Run synchronous code of an async run in threads, and wait for it even when the task is cancelled."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.train.cancellation import Cancellation

_threads: ContextVar[Executor | None] = ContextVar("trax_threads", default=None)


def use_threads(executor: Executor) -> None:
    """Use this executor for synchronous code in the current context, not the loop's small default pool."""
    _threads.set(executor)


class DaemonThreads(Executor):
    """An unbounded pool of daemon threads, reused when idle, that never delays the end of the process.

    The standard pool joins its threads when the interpreter exits: a junction that never returns would keep
    a stopping process alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._threads = 0
        self.idle = 0
        """Number of idle threads."""
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        call = partial(_complete_future, future, partial(fn, *args, **kwargs))
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the thread pool is closed")
            is_new = self.idle == 0
            if is_new:
                self._threads += 1
            else:
                self.idle -= 1
        if is_new:
            Thread(target=self._work, args=(call,), name=f"{self._name}-{self._threads}", daemon=True).start()
        else:
            self._calls.put(call)
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """End idle threads now and busy ones after their call, without waiting for them."""
        with self._lock:
            self._is_closed = True
            idle, self.idle = self.idle, 0
        for _ in range(idle):
            self._calls.put(None)

    def _work(self, call: Callable[[], None] | None) -> None:
        while call is not None:
            call()
            with self._lock:
                if self._is_closed:
                    return
                self.idle += 1
            call = self._calls.get()


def _complete_future(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - passed on through the future
        future.set_exception(error)
    else:
        future.set_result(result)


class CallResult(NamedTuple):
    """The result or error of a call. A future cannot hold every exception: StopIteration would hang it."""

    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def in_thread(call: Callable[[], Any], token: Cancellation) -> CallResult:
    """Run a call in a thread, with the context variables of this task.

    A running thread cannot be stopped. If this task is cancelled meanwhile, the token asks the call to stop,
    and the cancellation is raised only when the call has ended. A call that has not started in a thread yet
    is dropped; an abandoned one is not waited for. An error of the call is part of the returned value, unless
    it is a CancelledError.
    """
    claim = Lock()
    work = partial(_call_if_claimed, claim, call)
    future = asyncio.get_running_loop().run_in_executor(_threads.get(), copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
            token.cancel("the task around the run was cancelled")
            if claim.acquire(blocking=False) or token.is_abandoned:
                break
    if cancelled is not None:
        raise cancelled
    returned = future.result()
    if isinstance(returned.error, asyncio.CancelledError):
        raise returned.error
    return returned


def _call_if_claimed(claim: Lock, call: Callable[[], Any]) -> CallResult:
    """Run the call, unless the waiting side took the lock first and dropped it."""
    if not claim.acquire(blocking=False):
        return CallResult()
    try:
        return CallResult(call())
    except BaseException as error:  # noqa: BLE001 - returned to the waiting side
        return CallResult(error=error)
