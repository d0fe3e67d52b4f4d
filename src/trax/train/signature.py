"""What a callable asks for and gives, read from its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from trax.errors import DefinitionError
from trax.train.memory import MISSING, Want, wanted
from trax.train.scope import hints_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.train.scope import Scope

VARIADIC = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing a callable asks for; with a default it is content without."""

    name: str
    want: Want
    default: Any = MISSING
    is_keyword: bool = False

    @property
    def is_optional(self) -> bool:
        return self.default is not MISSING


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything a callable asks for, what it gives, and whether it must be awaited."""

    parameters: tuple[Parameter, ...]
    returns: Any
    is_async: bool


def signature_of(function: Callable[..., Any], scope: Scope, owner: str) -> Signature:
    """Read what a call of this runs: a function, a method, or the `__call__` of an object or of a class."""
    code = code_of(function)[0]
    returns = hints_of(code, scope, owner, {"return"}).get("return", MISSING)
    is_async = inspect.iscoroutinefunction(code) or _is_awaitable(returns)
    return Signature(parameters_of(function, scope, owner), _awaited(returns), is_async)


def parameters_of(function: Callable[..., Any], scope: Scope, owner: str) -> tuple[Parameter, ...]:
    """What a call of this asks for."""
    code, is_method = code_of(function)
    return _wired(code, list(inspect.signature(code).parameters.values())[is_method:], scope, owner)


def constructor_of(
    kind: type, scope: Scope, owner: str, *, required_only: bool = False
) -> tuple[Parameter, ...]:
    """What a class asks for before there is an instance."""
    if not inspect.isfunction(kind.__init__):
        return ()
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if required_only:
        parameters = [each for each in parameters if each.default is each.empty and each.kind not in VARIADIC]
    return _wired(kind.__init__, parameters, scope, owner)


def code_of(function: Any) -> tuple[Callable[..., Any], bool]:
    """The function that a call runs in the end, and whether its first parameter is `self`."""
    if isinstance(function, type):
        return function.__call__, True
    if inspect.isroutine(function):
        return function, False
    return type(function).__call__, True


def keys_asked_for(parameters: Iterable[Parameter]) -> set[Any]:
    return {key for parameter in parameters for key in parameter.want.keys}


def _wired(
    code: Callable[..., Any], parameters: list[inspect.Parameter], scope: Scope, owner: str
) -> tuple[Parameter, ...]:
    hints = hints_of(code, scope, owner, {parameter.name for parameter in parameters})
    return tuple(_parameter(parameter, hints, owner) for parameter in parameters)


def _parameter(parameter: inspect.Parameter, hints: dict[str, Any], owner: str) -> Parameter:
    if parameter.kind in VARIADIC:
        raise DefinitionError(f"{owner}: {parameter} cannot be wired by type; name each parameter")
    if parameter.name not in hints:
        raise DefinitionError(f"{owner}: parameter {parameter.name!r} has no annotation to wire it by")
    return Parameter(
        parameter.name,
        wanted(hints[parameter.name]),
        MISSING if parameter.default is parameter.empty else parameter.default,
        parameter.kind is parameter.KEYWORD_ONLY,
    )


def _is_awaitable(returns: Any) -> bool:
    return get_origin(returns) in {Awaitable, Coroutine}


def _awaited(returns: Any) -> Any:
    return get_args(returns)[-1] if _is_awaitable(returns) else returns
