"""Cancel or interrupt a run: a thread-safe token, and its binding to the task of the run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from trax.errors import RunCancelled, RunInterrupted, RunTimedOut

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable

T = TypeVar("T")
BindingT = TypeVar("BindingT", bound="TaskBinding")


class Cancellation:
    """A token that asks a run, and everything it starts with the same token, to stop.

    The first request wins. An async junction is interrupted where it awaits; a synchronous one cannot be, and
    should check `requested` or call `raise_if_requested()`. No junction starts after a request.
    """

    # Every run has a token and few use it: defaults on the class make one cheap to create.
    requested = False
    is_abandoned = False
    """Whether the run was abandoned: what it does from now on is not recorded."""
    reason: str | None = None
    _error: type[RunCancelled | RunInterrupted] = RunCancelled
    _bindings: tuple[TaskBinding, ...] = ()
    _lock: ClassVar = RLock()
    """Shared by all tokens, to keep them small. Reentrant: a signal handler may cancel while it is held."""

    def __repr__(self) -> str:
        return f"<Cancellation {self.reason!r}>" if self.requested else "<Cancellation, not requested>"

    def cancel(self, reason: str = "cancelled", *, timed_out: bool = False) -> None:
        """Ask the run to stop and not to run again; `timed_out`: it exceeded its timeout."""
        self._request(RunTimedOut if timed_out else RunCancelled, reason)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ask the run to stop now and to run again later."""
        self._request(RunInterrupted, reason)

    def abandon(self, reason: str = "abandoned") -> None:
        """Stop waiting for the run: its task ends at once, even if one of its threads continues."""
        self.is_abandoned = True
        self._request(RunInterrupted, reason)
        for binding in self._bindings:
            binding.schedule_cancel()

    @property
    def has_timed_out(self) -> bool:
        """Whether the run was asked to stop because it exceeded its timeout."""
        return self._error is RunTimedOut

    def raise_if_requested(self) -> None:
        if self.requested:
            raise self.error()

    def error(self) -> RunCancelled | RunInterrupted:
        """The error for a run that stopped: the request, or a CancelledError raised by a junction."""
        return self._error(self.reason or "a junction raised CancelledError")

    def bind(self, task: Task[Any] | None = None) -> TaskBinding:
        """Cancel a task (default: the calling one) when a stop is requested, until the binding ends."""
        return self.add(TaskBinding(task or cast("Task[Any]", asyncio.current_task()), self))

    def add(self, binding: BindingT) -> BindingT:
        with self._lock:
            self._bindings = (*self._bindings, binding)
        return binding

    def unbind(self, binding: TaskBinding) -> None:
        with self._lock:
            rest = self._bindings[1:] if self._bindings[0] is binding else self._bindings
            self._bindings = tuple(each for each in rest if each is not binding) if rest else ()

    def _request(self, error: type[RunCancelled | RunInterrupted], reason: str) -> None:
        with self._lock:
            if self.requested:
                return
            self._error, self.reason, self.requested = error, reason, True
            bindings = self._bindings
        for binding in bindings:
            binding.schedule_cancel()


async def await_cancellable(token: Cancellation, work: Awaitable[T]) -> T:
    """Await the work of a run; a stop request ends it with RunCancelled or RunInterrupted."""
    binding = token.bind()
    try:
        return await work
    except asyncio.CancelledError as cancelled:
        raise binding.error(cancelled) from cancelled
    finally:
        binding.release()


class TaskBinding:
    """Binds a token to the task of a run. It cancels the task at most once, and never after `release`."""

    _is_delivered = False
    _is_released = False

    def __init__(self, task: Task[Any], token: Cancellation) -> None:
        self._task = task
        self._token = token

    @property
    def is_over(self) -> bool:
        """Whether what it was bound for has ended. Read on the event loop only."""
        return self._is_released

    @property
    def is_running(self) -> bool:
        """Whether the event loop is executing this task right now."""
        return asyncio.current_task(self._task.get_loop()) is self._task

    def schedule_cancel(self) -> None:
        """Cancel the task from any thread. The loop may already be closed."""
        with suppress(RuntimeError):
            self._task.get_loop().call_soon_threadsafe(self._deliver)

    def release(self) -> None:
        """End the binding, and undo the cancel request it made, if any."""
        if self._is_released:
            return
        self._is_released = True
        self._token.unbind(self)
        if self._is_delivered:
            self._task.uncancel()

    def error(self, cancelled: asyncio.CancelledError) -> RunCancelled | RunInterrupted:
        """Release the binding and return the error for a run that was cancelled while it waited.

        A CancelledError without a request counts as a cancellation of the run. If other code cancelled the
        task, the CancelledError is raised again.
        """
        self.release()  # first, so that `cancelling` counts only requests of others
        if self._task.cancelling():
            raise cancelled
        error = self._token.error()
        error.__cause__ = cancelled
        return error

    def _deliver(self) -> None:
        # Another thread may have requested a stop just before the run ended. The flag is read and written
        # on the loop only, so a late delivery cannot cancel the code around the run.
        if not self.is_over:
            self._is_delivered = True
            self._task.cancel()
