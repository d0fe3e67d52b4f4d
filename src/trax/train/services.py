"""What a train may ask for that no junction produces: clients, sessions, settings."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from trax.errors import DefinitionError, shown
from trax.train.declared import name_of
from trax.train.instances import matches
from trax.train.keys import Key, key_of
from trax.train.scope import Scope
from trax.train.signature import Parameter, code_of, constructor_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

T = TypeVar("T")
Made: TypeAlias = "T | Awaitable[T] | Iterator[T] | AsyncIterator[T]"
Managed: TypeAlias = "AbstractContextManager[T] | AbstractAsyncContextManager[T]"


class Services:
    """Which types can be asked for, and how each is made; the things themselves live for one run."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Service] = {}

    def provide(
        self, kind: type[T], factory: T | Callable[..., Made[T] | Managed[T]], *, close: bool = True
    ) -> None:
        """Answer requests for `kind` with what `factory` gives, made at most once a run and when asked for.

        A factory is a function, a class, or a generator function that yields the service; its own parameters
        are wired by type. A context manager is entered, and left when the run ends, unless `close` is False.
        Anything that cannot be called is the service itself: shared by all runs, and never closed.
        """
        if factory is None:
            raise DefinitionError(f"provide({name_of(kind)}, None): a service cannot be None")
        self._by_key[key_of(kind)] = Service(kind, factory, closes=close)

    @property
    def kinds(self) -> list[Any]:
        return [service.kind for service in self._by_key.values()]

    def any_of(self, keys: frozenset[Key]) -> bool:
        return not keys.isdisjoint(self._by_key)

    def get(self, key: Key) -> Service | None:
        return self._by_key.get(key)


class Service:
    """One entry: a type and how to make it."""

    __slots__ = ("_parameters", "_scope", "closes", "is_async", "is_ready", "kind", "make", "needs_thread")

    def __init__(self, kind: Any, factory: Any, *, closes: bool) -> None:
        self.kind = kind
        self.closes = closes
        self.is_ready = _is_ready(factory, kind)
        self.make = factory if self.is_ready else _entering(factory, kind, closes=closes)
        self.is_async = not self.is_ready and inspect.iscoroutinefunction(code_of(factory)[0])
        # A constructor does no work worth a thread, and clients such as aiohttp's want the running loop.
        self.needs_thread = self.make is factory and not isinstance(factory, type)
        self._scope = Scope(factory)
        self._parameters: tuple[Parameter, ...] | None = None
        if self.is_ready and not matches(factory, kind):
            raise DefinitionError(self.misfit(factory))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the factory asks for. Of a class, which may be anyone's, only what it cannot do without."""
        if self._parameters is None:
            owner = f"the factory of {name_of(self.kind)}"
            if isinstance(self.make, type):
                self._parameters = constructor_of(self.make, self._scope, owner, required_only=True)
            else:
                self._parameters = parameters_of(self.make, self._scope, owner)
            self._scope.close()
        return self._parameters

    def misfit(self, value: Any) -> str:
        return f"provide({name_of(self.kind)}, …) gave {shown(value)}, which is no {name_of(self.kind)}"


def _is_ready(factory: Any, kind: Any) -> bool:
    """Whether this is no factory but the thing itself. A test double is, though it can often be called."""
    if inspect.isroutine(factory) or inspect.isclass(factory):
        return False
    return not callable(factory) or matches(factory, kind)


def _entering(factory: Callable[..., Any], kind: Any, *, closes: bool) -> Callable[..., Any]:
    """A generator function as the context manager it is meant to be; any other factory as it is."""
    if not (inspect.isgeneratorfunction(factory) or inspect.isasyncgenfunction(factory)):
        return factory
    if not closes:
        raise DefinitionError(f"provide({name_of(kind)}, …): what a generator yields is always closed")
    return contextmanager(factory) if inspect.isgeneratorfunction(factory) else asynccontextmanager(factory)
