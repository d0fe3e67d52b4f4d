"""One run of one train: from step to step through its memory, to an outcome."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar
from uuid import uuid4

from trax.errors import RunCancelled, RunInterrupted, RunTimedOut, WiringError
from trax.train.cancellation import Cancellation, held
from trax.train.declared import name_of
from trax.train.failure import describe
from trax.train.keys import key_of
from trax.train.memory import MISSING, Memory
from trax.train.outcome import Cancelled, Done, Failed, Interrupted, Outcome, error_of
from trax.train.requests import Snooze
from trax.train.threads import in_thread
from trax.train.wiring import Wiring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import TypeAlias

    from trax.train.cancellation import Bond
    from trax.train.plan import Plan, Step
    from trax.train.services import Services

    Observer: TypeAlias = Callable[[str], Awaitable[None] | None]
    """Hears of each junction before it begins; what it gives, if anything, is awaited first."""

T = TypeVar("T")

NO_KEYWORDS: dict[str, Any] = {}


class RunKeywords(TypedDict, total=False):
    """What may be said about one run, as keyword arguments."""

    cancellation: Cancellation | None
    services: Services | None
    extra: Mapping[Any, Any] | None
    external_id: str | None
    on_junction: Observer | None


class Journey:
    """The state of one run. A blocking one never waits, so that it can be made without a loop."""

    __slots__ = (
        "_bond",
        "_external_id",
        "_is_blocking",
        "_on_junction",
        "_plan",
        "_services",
        "_step",
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
    ) -> None:
        self.memory: Memory = {key_of(kind): value for kind, value in extra.items()} if extra else {}
        self.token = cancellation or Cancellation()
        self._plan = plan
        self._is_blocking = is_blocking
        self._services = services
        self._external_id = external_id
        self._on_junction = on_junction
        self._bond: Bond | None = None
        self._step: Step | None = None
        self._wiring: Wiring | None = None

    async def attempt(self, value: Any) -> Outcome[Any]:
        """Travel, then close what was opened on the way, however the journey ended."""
        try:
            outcome = await self._travel(value)
        except BaseException as error:
            if self._wiring is not None:
                await self._wiring.close(error)
            raise
        return outcome if self._wiring is None else await self._closed(outcome, self._wiring)

    async def attempt_in_thread(self, value: Any) -> Outcome[Any]:
        """Make the whole of a blocking journey in one hop to a thread."""
        try:
            return await held(self.token, self._hopped(value))
        except Exception as error:  # noqa: BLE001 - stopped by a wish, or there is no thread to be had
            return self._ended(error)

    def attempt_here(self, value: Any) -> Outcome[Any]:
        """Make a blocking journey in the calling thread."""
        return _driven(self.attempt(value))

    async def _hopped(self, value: Any) -> Outcome[Any]:
        return (await in_thread(partial(self.attempt_here, value), self.token)).result()

    async def _travel(self, value: Any) -> Outcome[Any]:
        """From step to step. A wish interrupts a journey where it waits; a blocking one asks between two."""
        token, observe = self.token, self._on_junction
        bond = self._bond = None if self._is_blocking else token.bind()
        try:
            token.raise_if_requested()
            self._plan.take(self.memory, value)
            for step in self._plan.steps:
                if token.requested:
                    token.raise_if_requested()
                if observe is not None:
                    first = observe(step.name)
                    if first is not None:
                        await first
                    token.raise_if_requested()  # the observer may have found a wish
                self._step = step
                error = await self._pass(step)
                if error is not None:
                    return self._ended(error)
            self._step = None
            return Done(self._result())
        except asyncio.CancelledError as cancelled:
            return self._ended(token.error() if bond is None else bond.error(cancelled))
        except BaseException as error:
            if self._is_beyond(error):
                raise
            return self._ended(error)  # whatever goes wrong on the way is an outcome
        finally:
            if bond is not None:
                bond.release()

    async def _pass(self, step: Step) -> BaseException | None:
        """Take one step; what its junction raised is returned: a StopIteration cannot leave a coroutine."""
        call, keywords, error = step.call, NO_KEYWORDS, None
        try:
            arguments = [self.memory[key] for key in step.keys]
        except KeyError:
            call, arguments, keywords = await self._prepared(step)
        try:
            if step.is_async:
                value = await call(*arguments, **keywords)
            elif self._is_blocking:
                value = call(*arguments, **keywords)
            else:
                value, error = await in_thread(partial(call, *arguments, **keywords), self.token)
        except BaseException as raised:
            if self._is_beyond(raised):
                raise
            return None if step.swallows(raised) else raised  # whatever a junction raises is an outcome
        if error is None:
            step.store(self.memory, value)
            return None
        return None if step.swallows(error) else error

    def _is_beyond(self, error: BaseException) -> bool:
        """Whether this is meant for more than the run: for its task, or, as by Ctrl-C, for the process.

        Python raises KeyboardInterrupt for a signal in the main thread only. A coroutine that is closed
        meets GeneratorExit while its task does not run; any other was raised by a junction.
        """
        if isinstance(error, KeyboardInterrupt):
            return current_thread() is main_thread()
        if isinstance(error, GeneratorExit):
            return self._bond is not None and not self._bond.is_running
        return isinstance(error, asyncio.CancelledError)

    async def _prepared(self, step: Step) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """What to call and with what, when memory alone does not tell."""
        owner, wiring = f"junction {step.name!r}", self._wired()
        call = step.call
        if step.constructor is not None:
            arguments, keywords = await wiring.fill(step.constructor, owner)
            call = step.call(*arguments, **keywords)
        return call, *await wiring.fill(step.parameters, owner)

    def _wired(self) -> Wiring:
        if self._wiring is None:
            name, is_blocking = self._plan.name, self._is_blocking
            self._wiring = Wiring(name, self.memory, self.token, self._services, is_blocking=is_blocking)
        return self._wiring

    def _result(self) -> Any:
        value = self._plan.result(self.memory)
        if value is MISSING:
            output = name_of(self._plan.output_type)
            raise WiringError(f"train {self._plan.name!r} is to give {output}, but no junction gave one")
        return value

    def _ended(self, error: BaseException) -> Failed | Cancelled | Interrupted:
        if isinstance(error, RunCancelled):
            timed_out = self.token.timed_out or isinstance(error, RunTimedOut)
            return Cancelled(str(error) or "cancelled", timed_out, error=error)
        if isinstance(error, RunInterrupted):
            delay = error.delay if isinstance(error, Snooze) else None
            return Interrupted(str(error) or "interrupted", delay, error=error)
        junction = self._step and self._step.name
        external_id = self._external_id or uuid4().hex
        failure = describe(error, train=self._plan.name, external_id=external_id, junction=junction)
        return Failed(error, failure)

    async def _closed(self, outcome: Outcome[Any], wiring: Wiring) -> Outcome[Any]:
        """The outcome once the services are closed: trouble there fails a journey that had gone well."""
        before = None if isinstance(outcome, Done) else error_of(outcome)
        after = await wiring.close(before)
        if after is before:
            return outcome
        assert after is not None  # noqa: S101 - closing takes no error away
        if self._is_beyond(after):
            raise after
        return self._ended(after)


def _driven(journey: Coroutine[Any, Any, T]) -> T:
    """Take a coroutine that never waits to its end, here and now."""
    try:
        journey.send(None)
    except StopIteration as end:
        return end.value
    finally:
        journey.close()
    raise RuntimeError("a blocking journey waited")
