"""Services that junctions can use, injected by type: created for a run, found for each argument, closed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Hashable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from trax.errors import DefinitionError, InvalidArgument, WiringError, did_you_mean, format_value
from trax.train.annotations import Scope, name_of
from trax.train.context import Cancellation, in_thread
from trax.train.memory import (
    MISSING,
    Key,
    Memory,
    Parameter,
    TypeRequest,
    code_of,
    constructor_of,
    key_of,
    matches,
    parameters_of,
    recall,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    Fill = Callable[[tuple[Parameter, ...], str], Awaitable[tuple[list[Any], dict[str, Any]]]]

logger = logging.getLogger(__name__)
T = TypeVar("T")
FactoryResult: TypeAlias = "T | Awaitable[T] | Iterator[T] | AsyncIterator[T]"
ManagedResult: TypeAlias = "AbstractContextManager[T] | AbstractAsyncContextManager[T]"


class Services:
    """The available service types and their factories; each service lives for one run."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Service] = {}

    def provide(
        self,
        kind: type[T],
        factory: T | Callable[..., FactoryResult[T] | ManagedResult[T]],
        *,
        close: bool = True,
    ) -> None:
        """Provide `kind` to junctions by calling `factory`, on first use and at most once per run.

        A factory is a function, a class, or a generator function that yields the service; its own parameters
        are injected by type. A context manager is entered, and exited when the run ends, unless `close` is
        False. An object that is not callable is the service itself: shared by all runs and never closed.
        """
        if factory is None:
            raise DefinitionError(f"provide({name_of(kind)}, None): a service cannot be None")
        declared: Any = kind
        if not isinstance(declared, Hashable):
            raise InvalidArgument("kind", "a type", declared)
        self._by_key[key_of(kind)] = Service(kind, factory, closes=close)

    @property
    def kinds(self) -> list[Any]:
        return [service.kind for service in self._by_key.values()]

    def has_any(self, keys: frozenset[Key]) -> bool:
        return not keys.isdisjoint(self._by_key)

    def get(self, key: Key) -> Service | None:
        return self._by_key.get(key)


class Service:
    """One service: its type and its factory."""

    __slots__ = ("_parameters", "_scope", "closes", "is_async", "is_ready", "kind", "make", "needs_thread")

    def __init__(self, kind: Any, factory: Any, *, closes: bool) -> None:
        self.kind = kind
        self.closes = closes
        self.is_ready = _is_ready(factory, kind)
        self.make = factory if self.is_ready else _wrap_generator(factory, kind, closes=closes)
        self.is_async = not self.is_ready and inspect.iscoroutinefunction(code_of(factory)[0])
        # A constructor is too quick for a thread, and clients such as aiohttp's need the running loop.
        self.needs_thread = self.make is factory and not isinstance(factory, type)
        self._scope = Scope(factory)
        self._parameters: tuple[Parameter, ...] | None = None
        if self.is_ready and not matches(factory, kind):
            raise DefinitionError(self.mismatch_message(factory))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the factory; for a class, which may be third-party, only the required ones."""
        if self._parameters is None:
            owner = f"the factory of {name_of(self.kind)}"
            if isinstance(self.make, type):
                self._parameters = constructor_of(self.make, self._scope, owner, required_only=True)
            else:
                self._parameters = parameters_of(self.make, self._scope, owner)
            self._scope.close()
        return self._parameters

    def mismatch_message(self, value: Any) -> str:
        return (
            f"provide({name_of(self.kind)}, …) returned {format_value(value)}, expected {name_of(self.kind)}"
        )


def _is_ready(factory: Any, kind: Any) -> bool:
    """Whether this is the service itself, not a factory. A callable test double is a service."""
    if inspect.isroutine(factory) or inspect.isclass(factory):
        return False
    return not callable(factory) or matches(factory, kind)


def _wrap_generator(factory: Callable[..., Any], kind: Any, *, closes: bool) -> Callable[..., Any]:
    """A generator function as a context manager; any other factory unchanged."""
    if not (inspect.isgeneratorfunction(factory) or inspect.isasyncgenfunction(factory)):
        return factory
    if not closes:
        raise DefinitionError(
            f"provide({name_of(kind)}, …): generators are always closed; remove close=False"
        )
    return contextmanager(factory) if inspect.isgeneratorfunction(factory) else asynccontextmanager(factory)


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


class Wiring:
    """Finds arguments for one run: from memory, services, built-in values and defaults."""

    def __init__(
        self, train: str, memory: Memory, token: Cancellation, services: Services | None, *, is_blocking: bool
    ) -> None:
        self._train = train
        self._memory = memory
        self._token = token
        self._run_services = services and RunServices(services, token, self.fill, is_blocking=is_blocking)

    async def fill(self, parameters: tuple[Parameter, ...], owner: str) -> tuple[list[Any], dict[str, Any]]:
        """The positional and keyword arguments for a callable."""
        arguments = [await self._find(each, owner) for each in parameters if not each.is_keyword]
        keywords = {each.name: await self._find(each, owner) for each in parameters if each.is_keyword}
        return arguments, keywords

    async def close(self, error: BaseException | None) -> BaseException | None:
        """Close the services of the run; return the error that it ends with now."""
        return await self._run_services.close(error) if self._run_services else error

    async def _find(self, parameter: Parameter, owner: str) -> Any:
        want = parameter.request
        value = recall(self._memory, want)
        if value is MISSING and self._run_services and not want.parts:
            value = await self._run_services.get(want)
        if value is MISSING:
            value = self._builtin_value(want)
        if value is MISSING:
            value = parameter.default
        if value is MISSING:
            raise self._not_found(parameter, owner)
        return value

    def _builtin_value(self, request: TypeRequest) -> Any:
        if request.declared is logging.Logger:
            return logging.getLogger(self._train)
        return self._token if request.declared is Cancellation else MISSING

    def _not_found(self, parameter: Parameter, owner: str) -> WiringError:
        missing = name_of(_find_missing(self._memory, parameter.request).declared)
        known = {name_of(kind): kind for kind in self._memory if isinstance(kind, type)}
        needs = f"{owner} needs {missing} (parameter {parameter.name!r})"
        return WiringError(
            f"train {self._train!r}: {needs}, which was not found; "
            f"available: {', '.join(sorted(known)) or 'nothing'}{did_you_mean(missing, known)}"
        )


def _find_missing(memory: Memory, request: TypeRequest) -> TypeRequest:
    """The first element of a requested tuple that memory does not have, else the request itself."""
    return next(
        (_find_missing(memory, part) for part in request.parts if recall(memory, part) is MISSING), request
    )
