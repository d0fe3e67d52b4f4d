"""`@junction`: make a typed function, or a class with `__call__`, a step of a route."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, overload

from trax.errors import DefinitionError, format_value
from trax.train.annotations import Scope
from trax.train.memory import (
    MISSING,
    Parameter,
    Signature,
    check_elements,
    code_of,
    constructor_of,
    signature_of,
)
from trax.train.route import In, In_contra, Out, Out_co, RouteStop, Segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class _Async(Protocol[In_contra, Out_co]):
    def __call__(self, first: In_contra, /, *args: Any, **kwargs: Any) -> Awaitable[Out_co]: ...


class _AsyncStart(Protocol[Out_co]):
    def __call__(self) -> Awaitable[Out_co]: ...


class _Sync(Protocol[In_contra, Out_co]):
    def __call__(self, first: In_contra, /, *args: Any, **kwargs: Any) -> Out_co: ...


class _SyncStart(Protocol[Out_co]):
    def __call__(self) -> Out_co: ...


class Junction(Segment[In_contra, Out_co]):
    """One step of a route: its arguments are found by type, and its result is stored by type.

    `In` is the type of its first parameter, `Out` its return type (once awaited). Calling a junction
    calls the original function or class, so a test needs no train.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__((RouteStop(self),))
        update_wrapper(self, function, updated=())
        self.function = function
        self.name = _name_of(function)
        self._scope = Scope(function)
        self._signature: Signature | None = None
        self._constructor: tuple[Parameter, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<junction {self.name}>"

    @property
    def is_class(self) -> bool:
        """Whether this is a class, instantiated when the step is reached."""
        return isinstance(self.function, type)

    @property
    def signature(self) -> Signature:
        """Parameters and return type; read on first use, since names may be defined after the junction."""
        if self._signature is None:
            self._signature = self._read_signature()
        return self._signature

    @property
    def constructor(self) -> tuple[Parameter, ...]:
        """The constructor parameters; empty unless the junction is a class."""
        return self.signature and self._constructor

    def _read_signature(self) -> Signature:
        owner = f"junction {self.name!r}"
        signature = signature_of(self.function, self._scope, owner)
        if signature.returns is MISSING:
            raise DefinitionError(
                f"{owner} has no return annotation; add one, `-> None` if it returns nothing"
            )
        check_elements(signature.returns, f"{owner}: its result")
        if isinstance(self.function, type):
            self._constructor = constructor_of(self.function, self._scope, owner)
        self._scope.close()
        return signature


@overload
def junction(function: type[_Async[In, Out]], /) -> Junction[In, Out]: ...
@overload
def junction(function: type[_AsyncStart[Out]], /) -> Junction[None, Out]: ...
@overload
def junction(function: type[_Sync[In, Out]], /) -> Junction[In, Out]: ...
@overload
def junction(function: type[_SyncStart[Out]], /) -> Junction[None, Out]: ...
@overload
def junction(function: Callable[Concatenate[In, ...], Awaitable[Out]], /) -> Junction[In, Out]: ...
@overload
def junction(function: Callable[[], Awaitable[Out]], /) -> Junction[None, Out]: ...
@overload
def junction(function: Callable[Concatenate[In, ...], Out], /) -> Junction[In, Out]: ...
@overload
def junction(function: Callable[[], Out], /) -> Junction[None, Out]: ...
def junction(function: Any, /) -> Junction[Any, Any]:
    """Make a function, a class with `__call__` or a callable object a step of a route."""
    if isinstance(function, Junction):
        return function  # pyright: ignore[reportUnknownVariableType]
    is_valid = inspect.isfunction(function.__call__) if isinstance(function, type) else callable(function)
    if not is_valid:
        raise DefinitionError(
            f"{format_value(function)} cannot be a junction: it cannot be called with an input"
        )
    _refuse_generator(function)
    return Junction(function)


def _refuse_generator(function: Any) -> None:
    code = code_of(function)[0]
    is_async = inspect.isasyncgenfunction(code)
    if is_async or inspect.isgeneratorfunction(code):
        name, kind = _name_of(function), "an async generator" if is_async else "a generator"
        raise DefinitionError(
            f"{name!r} is {kind} function, which cannot be a junction: calling it only creates a "
            f"generator; return a value instead of `yield`, such as a list"
        )


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
