"""Asking a run to stop: a token any thread may use, and the hold a run has on its task meanwhile."""

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


class Cancellation:
    """A wish that one run, and whatever it starts with the same token, may stop.

    The first wish wins. Async junctions are interrupted where they wait; synchronous ones cannot be, and
    poll `requested` or call `raise_if_requested()`. No junction is started once a wish was made.
    """

    __slots__ = ("_bonds", "_error", "is_abandoned", "reason", "requested")
    _lock: ClassVar = RLock()
    """One for all tokens, since every run has one. A signal may make a wish in the thread that holds it."""

    def __init__(self) -> None:
        self.requested = False
        self.is_abandoned = False
        """Whether nobody waits for the run any more: what it does from now on is not recorded."""
        self.reason: str | None = None
        self._error: type[RunCancelled | RunInterrupted] = RunCancelled
        self._bonds: list[Bond] = []

    def __repr__(self) -> str:
        return f"<Cancellation {self.reason!r}>" if self.requested else "<Cancellation, not requested>"

    def cancel(self, reason: str = "cancelled", *, timed_out: bool = False) -> None:
        """Ask the run to stop for good; `timed_out` says that it took longer than it may."""
        self._request(RunTimedOut if timed_out else RunCancelled, reason)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ask the run to stop now and to be run again later."""
        self._request(RunInterrupted, reason)

    def abandon(self, reason: str = "abandoned") -> None:
        """Leave the run to itself: its task ends at once, also while a thread of it goes on."""
        self.is_abandoned = True
        self._request(RunInterrupted, reason)
        with self._lock:
            bonds = tuple(self._bonds)
        for bond in bonds:
            bond.wake()

    @property
    def timed_out(self) -> bool:
        """Whether the run was asked to stop because it took longer than it may."""
        return self._error is RunTimedOut

    def raise_if_requested(self) -> None:
        if self.requested:
            raise self.error()

    def error(self) -> RunCancelled | RunInterrupted:
        """What a run that stopped ends with: the wish, or that it stopped by itself."""
        return self._error(self.reason or "a junction raised CancelledError")

    def bind(self) -> Bond:
        """Let a wish cancel the task that calls this until the bond is released."""
        bond = Bond(cast("Task[Any]", asyncio.current_task()), self)
        with self._lock:
            self._bonds.append(bond)
        return bond

    def unbind(self, bond: Bond) -> None:
        with self._lock:
            self._bonds.remove(bond)

    def _request(self, error: type[RunCancelled | RunInterrupted], reason: str) -> None:
        with self._lock:
            if self.requested:
                return
            self._error, self.reason, self.requested = error, reason, True
            bonds = tuple(self._bonds)
        for bond in bonds:
            bond.wake()


async def held(token: Cancellation, work: Awaitable[T]) -> T:
    """Await the work of a run; a wish ends it with RunCancelled or RunInterrupted."""
    bond = token.bind()
    try:
        return await work
    except asyncio.CancelledError as cancelled:
        raise bond.error(cancelled) from cancelled
    finally:
        bond.release()


class Bond:
    """A run's hold on its task. A wish cancels the task at most once, and never after the release."""

    __slots__ = ("_is_delivered", "_is_released", "_task", "_token")

    def __init__(self, task: Task[Any], token: Cancellation) -> None:
        self._task = task
        self._token = token
        self._is_delivered = False
        self._is_released = False

    @property
    def is_running(self) -> bool:
        """Whether the task is what its loop executes at this moment."""
        return asyncio.current_task(self._task.get_loop()) is self._task

    def wake(self) -> None:
        """Called in any thread; the loop may have been closed by now."""
        with suppress(RuntimeError):
            self._task.get_loop().call_soon_threadsafe(self._deliver)

    def release(self) -> None:
        """End the hold and take back the cancel request it made, if it made one."""
        if self._is_released:
            return
        self._is_released = True
        self._token.unbind(self)
        if self._is_delivered:
            self._task.uncancel()

    def error(self, cancelled: asyncio.CancelledError) -> RunCancelled | RunInterrupted:
        """What a run that was cancelled while it waited ends with; it is no longer held after that.

        A CancelledError that nobody asked for ends it like a wish. When someone cancelled the task itself,
        that is none of ours and goes on outwards.
        """
        self.release()  # first, so that only what others asked for is counted
        if self._task.cancelling():
            raise cancelled
        error = self._token.error()
        error.__cause__ = cancelled
        return error

    def _deliver(self) -> None:
        # A wish may have been made in another thread just before the run ended. The flag is read and
        # written on the loop only, so a late delivery cannot hit the code around the run.
        if not self._is_released:
            self._is_delivered = True
            self._task.cancel()
