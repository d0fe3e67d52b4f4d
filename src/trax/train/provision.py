"""The services of one run: made when first asked for, closed in reverse when the run has ended."""

from __future__ import annotations

import inspect
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from trax.errors import WiringError
from trax.train.declared import name_of
from trax.train.instances import matches
from trax.train.memory import MISSING
from trax.train.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trax.train.cancellation import Cancellation
    from trax.train.keys import Key
    from trax.train.memory import Want
    from trax.train.services import Service, Services
    from trax.train.signature import Parameter

    Fill = Callable[[tuple[Parameter, ...], str], Awaitable[tuple[list[Any], dict[str, Any]]]]

logger = logging.getLogger(__name__)


class Provision:
    """Makes what is asked for. In a blocking run nothing here ever waits, and nothing async can be had."""

    def __init__(self, services: Services, token: Cancellation, fill: Fill, *, is_blocking: bool) -> None:
        self._services = services
        self._token = token
        self._fill = fill
        self._is_blocking = is_blocking
        self._made: dict[Key, Any] = {}
        self._making: list[Service] = []
        self._entered: list[tuple[Any, bool]] = []

    async def get(self, want: Want) -> Any:
        """The service that answers a want, or MISSING."""
        for key in want.keys:
            if key in self._made:
                return self._made[key]
            service = self._services.get(key)
            if service is not None:
                self._made[key] = await self._make(service)
                return self._made[key]
        return MISSING

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Leave everything entered, telling it how the run ended; the answer is how it ends now.

        What goes wrong here fails a run that had gone well, and is only noted on one that had not.
        """
        while self._entered:
            manager, is_async = self._entered.pop()
            try:
                await self._leave(manager, error, is_async=is_async)
            except BaseException as trouble:  # noqa: BLE001 - the others must be closed first
                error = trouble if error is None else _noted(error, trouble, manager)
        return error

    async def _make(self, service: Service) -> Any:
        if service.is_ready:
            return service.make
        self._refuse_circles(service)
        self._making.append(service)
        try:
            value = await self._entered_value(service, await self._called(service))
        finally:
            self._making.pop()
        if not matches(value, service.kind):
            raise WiringError(service.misfit(value))
        return value

    async def _called(self, service: Service) -> Any:
        arguments, keywords = await self._fill(service.parameters, f"the factory of {name_of(service.kind)}")
        call = partial(service.make, *arguments, **keywords)
        value = await self._synchronously(call) if service.needs_thread and not service.is_async else call()
        if not inspect.iscoroutine(value):
            return value
        if self._is_blocking:
            value.close()
            raise self._not_here(service)
        return await value

    async def _entered_value(self, service: Service, value: Any) -> Any:
        if not service.closes:
            return value
        if _has(value, "__aenter__") and not self._is_blocking:
            entered = await value.__aenter__()
            self._entered.append((value, True))
            return entered
        if _has(value, "__enter__"):
            return await self._synchronously(partial(self._enter, value))
        if _has(value, "__aenter__"):
            raise self._not_here(service)
        return value

    def _enter(self, manager: Any) -> Any:
        """Enter and remember in one go, so that a cancelled run still closes what its thread opened."""
        entered = manager.__enter__()
        self._entered.append((manager, False))
        return entered

    async def _leave(self, manager: Any, error: BaseException | None, *, is_async: bool) -> None:
        about = (type(error), error, error.__traceback__) if error else (None, None, None)
        if is_async:
            await manager.__aexit__(*about)
        else:
            await self._synchronously(partial(manager.__exit__, *about))

    async def _synchronously(self, call: Callable[[], Any]) -> Any:
        if self._is_blocking:
            return call()
        return (await in_thread(call, self._token)).result()

    def _refuse_circles(self, service: Service) -> None:
        if service in self._making:
            circle = [*self._making[self._making.index(service) :], service]
            raise WiringError(
                "services need each other: " + " → ".join(name_of(each.kind) for each in circle)
            )

    def _not_here(self, service: Service) -> WiringError:
        return WiringError(
            f"{name_of(service.kind)} is an async service, and this run is blocking; "
            "run the train with `await train.run(…)`"
        )


def _has(value: object, method: str) -> bool:
    return hasattr(type(value), method)


def _noted(error: BaseException, trouble: BaseException, manager: Any) -> BaseException:
    """The error a run already ended with stays; trouble while closing is written beside it."""
    if trouble is error:
        return error
    if not isinstance(trouble, Exception):
        return trouble  # the task was cancelled while closing, which goes on outwards
    logger.error("closing %s failed after the run had failed", type(manager).__name__, exc_info=trouble)
    with suppress(Exception):
        error.add_note(f"closing {type(manager).__name__} then failed as well: {trouble!r}")
    return error
