"""Run a train: one loop runs its steps on the memory of a run, and returns an outcome.

Each train is compiled once, to one coroutine function: each call costs time. A blocking run executes the same
function without an event loop. What few runs need is built on first use: the token of a run, the binding of
the token to its task, and the wiring of services.
"""

from __future__ import annotations

import asyncio
from functools import partial
from threading import RLock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar
from uuid import uuid4

from trax.errors import RunCancelled, RunInterrupted, RunTimedOut, Snooze
from trax.forks import fork_safe
from trax.train.context import Cancellation, TaskBinding, await_cancellable, in_thread
from trax.train.memory import Memory, key_of
from trax.train.outcome import Cancelled, Done, Failed, Interrupted, Outcome, describe, error_of
from trax.train.services import Wiring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from trax.train.route import Plan, PlanStep
    from trax.train.services import Services

T = TypeVar("T")
Observer: TypeAlias = "Callable[[str], Awaitable[None] | None]"
"""Called with the name of each junction before it starts; an awaitable result is awaited first."""
Failure: TypeAlias = Failed | Cancelled | Interrupted
"""How a run ended that did not complete."""
StepLoop: TypeAlias = "Callable[[TrainRun, Any, Observer | None], Coroutine[Any, Any, Any]]"
"""Runs all steps of a train as this run, with this input. Returns the output, or sets `failure`."""
_lock = fork_safe(RLock())


class TrainRunKeywords(TypedDict, total=False):
    """The keyword arguments of one run of a train."""

    cancellation: Cancellation | None
    services: Services | None
    extra: Mapping[Any, Any] | None
    external_id: str | None


class TrainRun:
    """One run of a train. Any thread may use its token; the rest belongs to the code that executes it."""

    # Most runs change few of these: defaults on the class make a run cheap to start.
    external_id: str = ""
    task: asyncio.Task[Any] | None = None
    """The task that executes it."""
    services: Services | None = None
    values: Mapping[Any, Any] | None = None
    """Values by type that its memory has from the start."""
    is_blocking = False
    """Whether it never awaits anything pending, so that it needs no event loop."""
    is_bound = False
    """Whether its token cancels its task. Written on the event loop only."""
    built_token: Cancellation | None = None
    """Its token, if one was built: see `token`."""
    binding: TaskBinding | None = None
    failure: Failure | None = None
    """How it ended, if it did not complete."""
    wiring: Wiring | None = None
    """Finds arguments that memory does not have, and opens services."""

    def __init__(
        self,
        *,
        cancellation: Cancellation | None = None,
        services: Services | None = None,
        extra: Mapping[Any, Any] | None = None,
        external_id: str | None = None,
    ) -> None:
        self.built_token = cancellation
        self.services = services
        self.values = extra
        self.external_id = external_id or ""

    def outcome(self, output: T) -> Outcome[T]:
        """How it ended; `output` is what its execution returned."""
        return Done(output) if self.failure is None else self.failure

    @property
    def token(self) -> Cancellation:
        """Asks the run to stop. Built when it is first needed: most runs never need it."""
        if self.built_token is None:
            with _lock:
                if self.built_token is None:
                    self.built_token = Cancellation()  # before the check: see `run_steps`
                    if self.is_bound:
                        self._bind_token()
        return self.built_token

    @property
    def is_stop_requested(self) -> bool:
        return self.built_token is not None and self.built_token.requested

    def begin(self) -> None:
        """Let its token cancel the calling task from now on; no step begins after a stop request."""
        if self.is_blocking:
            self.is_bound = False
        elif self.task is None:
            self.task = asyncio.current_task()
        if self.built_token is not None:
            if self.is_bound:
                self._bind_token()
            self.built_token.raise_if_requested()

    def unbind(self) -> None:
        """Stop its token from cancelling its task: its steps have ended."""
        self.is_bound = False
        if self.binding is not None:
            binding, self.binding = self.binding, None
            binding.release()

    def _bind_token(self) -> TaskBinding:
        with _lock:
            if self.binding is None:
                assert self.task is not None  # noqa: S101 - set by `begin`
                token = self.token
                self.binding = token.add(RunBinding(self.task, token, self))
            return self.binding

    async def execute_in_thread(
        self, steps: StepLoop, value: Any, observe: Observer | None, train: str
    ) -> Any:
        """Run all steps of this train in one thread, without an event loop."""
        call = in_thread(partial(self.execute_here, steps, value, observe), self.token)
        try:
            return (await await_cancellable(self.token, call)).result()
        except Exception as error:  # noqa: BLE001 - stopped by a request, or no thread available
            self.failure = self.failure_of(error, train, None)
            return None

    def execute_here(self, steps: StepLoop, value: Any, observe: Observer | None = None) -> Any:
        """Run all steps in the calling thread, without an event loop."""
        self.is_blocking = True
        return _run_to_end(steps(self, value, observe))

    async def prepare_call(
        self, plan: Plan, step: PlanStep, memory: Memory, services: Services | None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """What to call with which arguments, when memory alone cannot provide them."""
        if self.wiring is None:
            services = self.services or services
            self.wiring = Wiring(plan.name, memory, self.token, services, is_blocking=self.is_blocking)
        owner, fill = f"junction {step.name!r}", self.wiring.fill
        call = step.call
        if step.constructor is not None:
            arguments, keywords = await fill(step.constructor, owner)
            call = step.call(*arguments, **keywords)
        arguments, keywords = await fill(step.parameters, owner)
        return partial(call, **keywords) if keywords else call, arguments

    def fail(self, error: BaseException, train: str, step: PlanStep | None) -> None:
        """Set how the run ended, since its steps raised this; raise it if it concerns more than the run."""
        if isinstance(error, asyncio.CancelledError):
            error = self.token.error() if self.is_blocking else self._bind_token().error(error)
        elif self._is_propagated(error):
            raise error
        self.failure = self.failure_of(error, train, step)

    def _is_propagated(self, error: BaseException) -> bool:
        """Whether the error concerns more than this run: its task, or (Ctrl-C) the whole process.

        Python raises KeyboardInterrupt for a signal in the main thread only. A coroutine that is being closed
        gets GeneratorExit while its task is not running; any other GeneratorExit was raised by a junction.
        """
        if isinstance(error, KeyboardInterrupt):
            return current_thread() is main_thread()
        if isinstance(error, GeneratorExit):
            return not (self.is_blocking or self._is_running)
        return isinstance(error, asyncio.CancelledError)

    @property
    def _is_running(self) -> bool:
        """Whether the event loop is executing its task right now."""
        return self.task is not None and asyncio.current_task(self.task.get_loop()) is self.task

    def failure_of(self, error: BaseException, train: str, step: PlanStep | None) -> Failure:
        """The outcome of a run that this error ended."""
        if isinstance(error, RunCancelled):
            timed_out = self.token.has_timed_out or isinstance(error, RunTimedOut)
            return Cancelled(str(error) or "cancelled", timed_out, error=error)
        if isinstance(error, RunInterrupted):
            delay = error.delay if isinstance(error, Snooze) else None
            return Interrupted(str(error) or "interrupted", delay, error=error)
        external_id, junction = self.external_id or uuid4().hex, step and step.name
        return Failed(error, describe(error, train=train, external_id=external_id, junction=junction))

    async def close_services(self, wiring: Wiring, output: Any, train: str, step: PlanStep | None) -> Any:
        """Close the services and return the output; an error there fails a run that had succeeded."""
        before = None if self.failure is None else error_of(self.failure)
        after = await wiring.close(before)
        if after is before:
            return output
        assert after is not None  # noqa: S101 - closing takes no error away
        if self._is_propagated(after):
            raise after
        self.failure = self.failure_of(after, train, step)
        return None


class RunBinding(TaskBinding):
    """The binding of a run's token. It ends with the run, even if another thread asks for the token then."""

    def __init__(self, task: asyncio.Task[Any], token: Cancellation, run: TrainRun) -> None:
        super().__init__(task, token)
        self._run = run

    @property
    def is_over(self) -> bool:
        return not self._run.is_bound or super().is_over


def compile_steps(plan: Plan, services: Services | None) -> StepLoop:  # noqa: C901, PLR0915 - one loop
    """The coroutine function that runs the steps of a train. `services` are for runs without their own.

    A stop request interrupts a run at an await, a blocking run between steps.
    """
    train, steps, find_result = plan.name, plan.steps, plan.find_result
    store_input = plan.store_input

    async def run_steps(run: TrainRun, value: Any, observe: Observer | None) -> Any:  # noqa: C901, PLR0912, PLR0915
        values = run.values
        memory: Memory = {} if values is None else {key_of(kind): values[kind] for kind in values}
        step: PlanStep | None = None
        output = None
        try:
            try:
                run.is_bound = True  # before the check: another thread may build the token meanwhile
                if run.built_token is not None or run.task is None:
                    run.begin()
                store_input(memory, value)
                for step in steps:
                    if observe is not None:
                        if (token := run.built_token) is not None:
                            token.raise_if_requested()
                        if (pending := observe(step.name)) is not None:
                            await pending
                    if (token := run.built_token) is not None:
                        token.raise_if_requested()
                    call = step.call
                    try:
                        arguments = [memory[key] for key in step.keys]
                    except KeyError:
                        call, arguments = await run.prepare_call(plan, step, memory, services)
                    try:
                        if step.is_async:
                            result = await call(*arguments)
                        elif run.is_blocking:
                            result = call(*arguments)
                        else:
                            result, raised = await in_thread(partial(call, *arguments), run.token)
                            if raised is not None:  # by the junction, even if it is a KeyboardInterrupt
                                if step.swallows(raised):
                                    continue
                                run.failure = run.failure_of(raised, train, step)
                                break
                    except BaseException as error:
                        if not step.swallows(error):
                            raise
                    else:
                        step.store(memory, result)
                else:
                    step = None
                    output = find_result(memory)
            except BaseException as error:  # noqa: BLE001 - most errors are an outcome
                run.fail(error, train, step)
            finally:
                run.is_bound = False
                if run.binding is not None:
                    run.unbind()
        except BaseException as error:
            if run.wiring is not None:
                await run.wiring.close(error)
            raise
        return output if run.wiring is None else await run.close_services(run.wiring, output, train, step)

    return run_steps


def _run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never awaits anything pending, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()
    raise RuntimeError("a blocking run must not await anything")
