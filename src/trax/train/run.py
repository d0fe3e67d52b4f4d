"""Execute one run of a train: run its steps on its memory, and return an outcome."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar
from uuid import uuid4

from trax.errors import RunCancelled, RunInterrupted, RunTimedOut, Snooze
from trax.train.context import Cancellation, await_cancellable, in_thread
from trax.train.memory import Memory, key_of
from trax.train.outcome import Cancelled, Done, Failed, Interrupted, Outcome, describe, error_of
from trax.train.services import Wiring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import TypeAlias

    from trax.train.context import TaskBinding
    from trax.train.route import Plan, PlanStep
    from trax.train.services import Services

    Observer: TypeAlias = Callable[[str], Awaitable[None] | None]
    """Called with the name of each junction before it starts; an awaitable result is awaited first."""

T = TypeVar("T")

NO_KEYWORDS: dict[str, Any] = {}


class TrainRunKeywords(TypedDict, total=False):
    """The keyword arguments of one run of a train."""

    cancellation: Cancellation | None
    services: Services | None
    extra: Mapping[Any, Any] | None
    external_id: str | None
    on_junction: Observer | None
    task: asyncio.Task[Any] | None
    """The calling task, if the caller knows it: looking it up costs as much as a short junction."""


class TrainRun:
    """The state of one run. A blocking run never awaits, so it needs no event loop."""

    __slots__ = (
        "_binding",
        "_external_id",
        "_is_blocking",
        "_on_junction",
        "_plan",
        "_services",
        "_step",
        "_task",
        "_wiring",
        "memory",
        "token",
    )

    def __init__(
        self,
        plan: Plan,
        *,
        is_blocking: bool,
        cancellation: Cancellation | None = None,
        services: Services | None = None,
        extra: Mapping[Any, Any] | None = None,
        external_id: str | None = None,
        on_junction: Observer | None = None,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        self.memory: Memory = {key_of(kind): value for kind, value in extra.items()} if extra else {}
        self.token = cancellation or Cancellation()
        self._plan = plan
        self._is_blocking = is_blocking
        self._services = services
        self._external_id = external_id
        self._on_junction = on_junction
        self._task = task
        self._binding: TaskBinding | None = None
        self._step: PlanStep | None = None
        self._wiring: Wiring | None = None

    async def attempt(self, value: Any) -> Outcome[Any]:
        """Run all steps, then close the services that were opened, whatever the outcome."""
        return await self._attempt(value)

    async def resume(self, memory: Memory, first: int) -> Outcome[Any]:
        """Run the steps from `first` on, with the memory of those before; close the services as above."""
        self.memory = memory
        return await self._attempt(None, first)

    def outcome_of(self, error: BaseException, step: PlanStep | None, binding: TaskBinding) -> Outcome[Any]:
        """The outcome of an async run whose steps raised this; raises it if it concerns more than the run."""
        self._step, self._binding = step, binding
        return self._outcome_of_raised(error)

    async def _attempt(self, value: Any, first: int | None = None) -> Outcome[Any]:
        try:
            outcome = await self._run_steps(value, first)
        except BaseException as error:
            if self._wiring is not None:
                await self._wiring.close(error)
            raise
        return outcome if self._wiring is None else await self._close_services(outcome, self._wiring)

    async def attempt_in_thread(self, value: Any) -> Outcome[Any]:
        """Run all steps of a blocking run in one thread."""
        try:
            return await await_cancellable(self.token, self._run_in_thread(value))
        except Exception as error:  # noqa: BLE001 - stopped by a request, or no thread available
            return self._outcome_of(error)

    def attempt_here(self, value: Any) -> Outcome[Any]:
        """Run all steps of a blocking run in the calling thread."""
        return _run_to_end(self.attempt(value))

    async def _run_in_thread(self, value: Any) -> Outcome[Any]:
        return (await in_thread(partial(self.attempt_here, value), self.token)).result()

    async def _run_steps(self, value: Any, first: int | None) -> Outcome[Any]:
        """Run the steps. A stop request interrupts an async run at an await, a blocking one between steps."""
        token, observe = self.token, self._on_junction
        binding = self._binding = None if self._is_blocking else token.bind(self._task)
        try:
            token.raise_if_requested()
            if first is None:
                self._plan.store_input(self.memory, value)
            for step in self._plan.steps[first:]:
                if token.requested:
                    token.raise_if_requested()
                if observe is not None:
                    pending = observe(step.name)
                    if pending is not None:
                        await pending
                    token.raise_if_requested()  # the observer may have requested a stop
                self._step = step
                error = await self._run_step(step)
                if error is not None:
                    return self._outcome_of(error)
            self._step = None
            return Done(self._plan.find_result(self.memory))
        except BaseException as error:  # noqa: BLE001 - most errors are an outcome
            return self._outcome_of_raised(error)
        finally:
            if binding is not None:
                binding.release()

    def _outcome_of_raised(self, error: BaseException) -> Outcome[Any]:
        if isinstance(error, asyncio.CancelledError):
            binding = self._binding
            return self._outcome_of(self.token.error() if binding is None else binding.error(error))
        if self._is_propagated(error):
            raise error
        return self._outcome_of(error)

    async def _run_step(self, step: PlanStep) -> BaseException | None:
        """Run one step; return the error of its junction, since a StopIteration cannot leave a coroutine."""
        call, keywords, error = step.call, NO_KEYWORDS, None
        try:
            arguments = [self.memory[key] for key in step.keys]
        except KeyError:
            call, arguments, keywords = await self._prepare_call(step)
        try:
            if step.is_async:
                value = await call(*arguments, **keywords)
            elif self._is_blocking:
                value = call(*arguments, **keywords)
            else:
                value, error = await in_thread(partial(call, *arguments, **keywords), self.token)
        except BaseException as raised:
            if self._is_propagated(raised):
                raise
            return None if step.swallows(raised) else raised  # any error of a junction is an outcome
        if error is None:
            step.store(self.memory, value)
            return None
        return None if step.swallows(error) else error

    def _is_propagated(self, error: BaseException) -> bool:
        """Whether the error concerns more than this run: its task, or (Ctrl-C) the whole process.

        Python raises KeyboardInterrupt for a signal in the main thread only. A coroutine that is being closed
        gets GeneratorExit while its task is not running; any other GeneratorExit was raised by a junction.
        """
        if isinstance(error, KeyboardInterrupt):
            return current_thread() is main_thread()
        if isinstance(error, GeneratorExit):
            return self._binding is not None and not self._binding.is_running
        return isinstance(error, asyncio.CancelledError)

    async def _prepare_call(self, step: PlanStep) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """The callable and its arguments, when memory alone cannot provide them."""
        owner, wiring = f"junction {step.name!r}", self._get_wiring()
        call = step.call
        if step.constructor is not None:
            arguments, keywords = await wiring.fill(step.constructor, owner)
            call = step.call(*arguments, **keywords)
        return call, *await wiring.fill(step.parameters, owner)

    def _get_wiring(self) -> Wiring:
        if self._wiring is None:
            name, is_blocking = self._plan.name, self._is_blocking
            self._wiring = Wiring(name, self.memory, self.token, self._services, is_blocking=is_blocking)
        return self._wiring

    def _outcome_of(self, error: BaseException) -> Failed | Cancelled | Interrupted:
        if isinstance(error, RunCancelled):
            timed_out = self.token.has_timed_out or isinstance(error, RunTimedOut)
            return Cancelled(str(error) or "cancelled", timed_out, error=error)
        if isinstance(error, RunInterrupted):
            delay = error.delay if isinstance(error, Snooze) else None
            return Interrupted(str(error) or "interrupted", delay, error=error)
        junction = self._step and self._step.name
        external_id = self._external_id or uuid4().hex
        failure = describe(error, train=self._plan.name, external_id=external_id, junction=junction)
        return Failed(error, failure)

    async def _close_services(self, outcome: Outcome[Any], wiring: Wiring) -> Outcome[Any]:
        """Close the services and return the outcome; an error there fails a run that had succeeded."""
        before = None if isinstance(outcome, Done) else error_of(outcome)
        after = await wiring.close(before)
        if after is before:
            return outcome
        assert after is not None  # noqa: S101 - closing takes no error away
        if self._is_propagated(after):
            raise after
        return self._outcome_of(after)


def _run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never awaits anything pending, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()
    raise RuntimeError("a blocking run must not await anything")
