"""Around a run: the token that stops it, `current()`, and the threads of its synchronous code."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import datetime
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

from trax.bounds import is_number
from trax.errors import InvalidArgument, RunCancelled, RunInterrupted, RunTimedOut, UnexpectedCancellation
from trax.forks import bind_to_process, fork_safe
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeAlias

    Reporter: TypeAlias = Callable[[float, str | None], None]

logger = logging.getLogger(__name__)
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
    _lock: ClassVar = fork_safe(RLock())
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

    def error(self) -> RunCancelled | RunInterrupted | UnexpectedCancellation:
        """The error for a run that stopped: by a request, or because a junction raised CancelledError."""
        if not self.requested:
            return UnexpectedCancellation("a junction raised CancelledError, but nobody cancelled the run")
        return self._error(self.reason or "cancelled")

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
        """Whether the work that it was bound for has ended. Read on the event loop only."""
        return self._is_released

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

    def error(
        self, cancelled: asyncio.CancelledError
    ) -> RunCancelled | RunInterrupted | UnexpectedCancellation:
        """Release the binding and return the error for a run that was cancelled while it waited.

        A CancelledError without a request is a failure. If other code cancelled the task, the CancelledError
        is raised again.
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


class Activator(Protocol):
    """Activates dormant dependents of a run's manifest, from async and from blocking code."""

    def __call__(self, run: Run, activations: list[tuple[str, Any]], /, *, force: bool) -> Awaitable[int]: ...

    def activate_blocking(self, run: Run, activations: list[tuple[str, Any]], /, *, force: bool) -> int: ...


@dataclass(slots=True, kw_only=True)
class Run:
    """The recorded run that the calling code is part of.

    `manifest` is the external id of its manifest; for a nested run, that of the outer run's manifest.
    """

    metadata_id: int
    external_id: str
    train: str
    manifest: str | None = None
    attempt: int = 1
    parent_id: int | None = None
    scheduled_for: datetime | None = None
    cancellation: Cancellation = field(default_factory=Cancellation, repr=False)
    activator: Activator | None = field(default=None, repr=False)
    reporter: Reporter | None = field(default=None, repr=False)
    secret_words: frozenset[str] = field(default=frozenset(), repr=False)
    """Secrets of its input, masked in everything that is recorded."""

    @property
    def cancelled(self) -> bool:
        """Whether this run was asked to stop, cancelled or interrupted."""
        return self.cancellation.requested

    async def progress(self, fraction: float, message: str | None = None) -> None:
        """Report the progress of this run: a fraction from 0 to 1, and a short message. Cheap to call often.

        It is visible within a second. Only the latest report is stored, in one batch with other runs.
        """
        self.sync.progress(fraction, message)

    async def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        """Activate a dormant dependent of this manifest with an input; see `activate_many`."""
        return await self.activate_many([(external_id, value)], force=force)

    async def activate_many(self, activations: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        """Activate dormant dependents of this manifest: all, or none if one is not its dependent.

        A dependent that is already queued or running is skipped, and so is one whose dead letter awaits
        intervention, unless `force` is true. Returns the number activated; 0 for a run without a manifest.
        """
        activator = self.find_activator()
        return 0 if activator is None else await activator(self, list(activations), force=force)

    @property
    def sync(self) -> BlockingRun:
        """The same methods for synchronous junctions: `run.sync.activate(…)`."""
        return BlockingRun(self)

    def find_activator(self) -> Activator | None:
        """The activator of this run; None, with a warning, for a run without a manifest."""
        if self.activator is None or self.manifest is None:
            logger.warning(
                "train %r: this run has no manifest, so no dependents to activate",
                self.train,
                extra={"train": self.train, "metadata_id": self.metadata_id},
            )
            return None
        return self.activator


@dataclass(frozen=True, slots=True)
class BlockingRun:
    """The methods of a run for synchronous code; each returns when it is done."""

    run: Run

    def progress(self, fraction: float, message: str | None = None) -> None:
        valid_fraction = _validate_fraction(fraction)
        _validate_message(message)
        if self.run.reporter is not None:
            self.run.reporter(valid_fraction, message and hide_words(message, self.run.secret_words))

    def activate(self, external_id: str, value: Any, *, force: bool = False) -> int:
        return self.activate_many([(external_id, value)], force=force)

    def activate_many(self, activations: Iterable[tuple[str, Any]], *, force: bool = False) -> int:
        activator = self.run.find_activator()
        return (
            0 if activator is None else activator.activate_blocking(self.run, list(activations), force=force)
        )


def _validate_fraction(fraction: Any) -> float:
    if not is_number(fraction, 0, 1):
        raise InvalidArgument("progress", "a number from 0 to 1", fraction)
    return float(fraction)


def _validate_message(message: Any) -> None:
    if message is not None and not isinstance(message, str):
        raise InvalidArgument("message", "text, or None", message)


class RunSource(Protocol):
    """Builds the current run when a junction asks for it: most runs never ask."""

    @property
    def run(self) -> Run: ...


_current: ContextVar[Run | RunSource | None] = ContextVar("trax_current_run", default=None)


def current() -> Run | None:
    """The recorded run that this code is part of; None outside a run."""
    source = _current.get()
    return source if source is None or isinstance(source, Run) else source.run


set_current: Callable[[RunSource], object] = _current.set
"""Make this the current run for the rest of the context, which is the run's own."""


class enter_run:  # noqa: N801 - used like a function in a with statement
    """Make this the current run inside the block. A class, since a generator would be slower."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        self._token = _current.set(self._run)
        return self._run

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


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
        self._lock = fork_safe(Lock())
        self._threads = 0
        self.idle = 0
        """Number of idle threads."""
        self._is_closed = False
        bind_to_process(self)

    def reset_in_child(self) -> None:
        """No thread of the parent waits for calls here."""
        self._calls, self.idle = SimpleQueue(), 0

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
        with suppress(RuntimeError):  # the loop was closed meanwhile: no task waits
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
