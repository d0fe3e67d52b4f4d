"""The services of one run: created on first use, closed in reverse order when the run has ended."""

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
    from trax.train.memory import TypeRequest
    from trax.train.services import Service, Services
    from trax.train.signature import Parameter

    Fill = Callable[[tuple[Parameter, ...], str], Awaitable[tuple[list[Any], dict[str, Any]]]]

logger = logging.getLogger(__name__)


class RunServices:
    """Creates and closes services. In a blocking run it never awaits, and async services are refused."""

    def __init__(self, services: Services, token: Cancellation, fill: Fill, *, is_blocking: bool) -> None:
        self._services = services
        self._token = token
        self._fill = fill
        self._is_blocking = is_blocking
        self._instances: dict[Key, Any] = {}
        self._in_progress: list[Service] = []
        self._open_managers: list[tuple[Any, bool]] = []

    async def get(self, request: TypeRequest) -> Any:
        """The service for a requested type, or MISSING."""
        for key in request.keys:
            if key in self._instances:
                return self._instances[key]
            service = self._services.get(key)
            if service is not None:
                self._instances[key] = await self._make(service)
                return self._instances[key]
        return MISSING

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Exit all context managers with the error of the run, if any; return the error it ends with now.

        An error while closing fails a run that had succeeded, and is only noted on one that had failed.
        """
        while self._open_managers:
            manager, is_async = self._open_managers.pop()
            try:
                await self._leave(manager, error, is_async=is_async)
            except BaseException as close_error:  # noqa: BLE001 - the others must be closed first
                error = close_error if error is None else _add_close_note(error, close_error, manager)
        return error

    async def _make(self, service: Service) -> Any:
        if service.is_ready:
            return service.make
        self._refuse_cycles(service)
        self._in_progress.append(service)
        try:
            value = await self._enter_value(service, await self._call_factory(service))
        finally:
            self._in_progress.pop()
        if not matches(value, service.kind):
            raise WiringError(service.mismatch_message(value))
        return value

    async def _call_factory(self, service: Service) -> Any:
        arguments, keywords = await self._fill(service.parameters, f"the factory of {name_of(service.kind)}")
        call = partial(service.make, *arguments, **keywords)
        value = await self._run_sync(call) if service.needs_thread and not service.is_async else call()
        if not inspect.iscoroutine(value):
            return value
        if self._is_blocking:
            value.close()
            raise self._async_service_error(service)
        return await value

    async def _enter_value(self, service: Service, value: Any) -> Any:
        if not service.closes:
            return value
        if _has_method(value, "__aenter__") and not self._is_blocking:
            service_value = await value.__aenter__()
            self._open_managers.append((value, True))
            return service_value
        if _has_method(value, "__enter__"):
            return await self._run_sync(partial(self._enter, value))
        if _has_method(value, "__aenter__"):
            raise self._async_service_error(service)
        return value

    def _enter(self, manager: Any) -> Any:
        """Enter and record in one call, so that a cancelled run still closes what its thread opened."""
        value = manager.__enter__()
        self._open_managers.append((manager, False))
        return value

    async def _leave(self, manager: Any, error: BaseException | None, *, is_async: bool) -> None:
        details = (type(error), error, error.__traceback__) if error else (None, None, None)
        if is_async:
            await manager.__aexit__(*details)
        else:
            await self._run_sync(partial(manager.__exit__, *details))

    async def _run_sync(self, call: Callable[[], Any]) -> Any:
        if self._is_blocking:
            return call()
        return (await in_thread(call, self._token)).result()

    def _refuse_cycles(self, service: Service) -> None:
        if service in self._in_progress:
            cycle = [*self._in_progress[self._in_progress.index(service) :], service]
            raise WiringError(
                "services depend on each other: " + " → ".join(name_of(each.kind) for each in cycle)
            )

    def _async_service_error(self, service: Service) -> WiringError:
        return WiringError(
            f"{name_of(service.kind)} is an async service, and this run is blocking; "
            "run the train with `await train.run(…)`"
        )


def _has_method(value: object, method: str) -> bool:
    return hasattr(type(value), method)


def _add_close_note(error: BaseException, close_error: BaseException, manager: Any) -> BaseException:
    """Keep the error that the run ended with; log an error while closing and add it as a note."""
    if close_error is error:
        return error
    if not isinstance(close_error, Exception):
        return close_error  # the task was cancelled while closing; that must propagate
    logger.error("service %s: close failed after a failed run", type(manager).__name__, exc_info=close_error)
    with suppress(Exception):
        error.add_note(f"closing {type(manager).__name__} then failed as well: {close_error!r}")
    return error
