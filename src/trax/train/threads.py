"""Run synchronous code of an async run in threads, and wait for it even when the task is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.train.cancellation import Cancellation

_threads: ContextVar[DaemonThreads | None] = ContextVar("trax_threads", default=None)


def use_threads(threads: DaemonThreads) -> None:
    """Use these threads for synchronous code in the current context, not the loop's small default pool."""
    _threads.set(threads)


class DaemonThreads:
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

    def start(self, call: Callable[[], None]) -> None:
        """Run a call, which must not raise, in an idle thread or a new one."""
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

    def shutdown(self) -> None:
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


class CallResult(NamedTuple):
    """The result or error of a call. A future cannot hold every exception: StopIteration would hang it."""

    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class ThreadCall:
    """A call that runs in a thread, with the context variables of the task that waits for it on the loop."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: CallResult | None = None
        self._call = call
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self._claim = Lock()
        """Taken by the thread that runs the call, or by the waiting side that drops it."""
        self._waiter: asyncio.Future[None] | None = None

    def start(self) -> None:
        threads = _threads.get()
        if threads is None:
            self._loop.run_in_executor(None, self._run)
        else:
            threads.start(self._run)

    async def wait(self) -> None:
        """Wait until the call has returned. If the task is cancelled, the call goes on; wait again."""
        if self.result is None:
            self._waiter = self._loop.create_future()
            await self._waiter

    def drop(self) -> bool:
        """Whether the call had not started; then it never will."""
        return self._claim.acquire(blocking=False)

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        try:
            result = CallResult(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - returned to the waiting side
            result = CallResult(error=error)
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            self._loop.call_soon_threadsafe(self._deliver, result)

    def _deliver(self, result: CallResult) -> None:
        self.result = result
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def in_thread(call: Callable[[], Any], token: Cancellation) -> CallResult:
    """Run a call in a thread, with the context variables of this task.

    A running thread cannot be stopped. If this task is cancelled meanwhile, the token asks the call to stop,
    and the cancellation is raised only when the call has ended. A call that has not started in a thread yet
    is dropped; an abandoned one is not waited for. An error of the call is part of the returned value, unless
    it is a CancelledError.
    """
    thread_call = ThreadCall(call)
    thread_call.start()
    cancelled: asyncio.CancelledError | None = None
    while thread_call.result is None:
        try:
            await thread_call.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            token.cancel("the task around the run was cancelled")
            if thread_call.drop() or token.is_abandoned:
                break
    if cancelled is not None:
        raise cancelled
    returned = thread_call.result
    assert returned is not None  # noqa: S101 - the loop above waited for it
    if isinstance(returned.error, asyncio.CancelledError):
        raise returned.error
    return returned
