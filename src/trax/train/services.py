"""Services that junctions can use, injected by type: clients, sessions, settings."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from trax.errors import DefinitionError, format_value
from trax.train.declared import name_of
from trax.train.instances import matches
from trax.train.keys import Key, key_of
from trax.train.scope import Scope
from trax.train.signature import Parameter, code_of, constructor_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

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
