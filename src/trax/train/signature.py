"""The parameters and the return type of a callable, read from its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from trax.errors import DefinitionError
from trax.train.memory import MISSING, TypeRequest, request_for
from trax.train.scope import hints_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trax.train.scope import Scope

VARIADIC = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a callable; optional if it has a default."""

    name: str
    request: TypeRequest
    default: Any = MISSING
    is_keyword: bool = False

    @property
    def is_optional(self) -> bool:
        return self.default is not MISSING


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and return type of a callable, and whether it must be awaited."""

    parameters: tuple[Parameter, ...]
    returns: Any
    is_async: bool


def signature_of(function: Callable[..., Any], scope: Scope, owner: str) -> Signature:
    """Read the signature of a function, a method, or the `__call__` of an object or a class."""
    code = code_of(function)[0]
    returns = hints_of(code, scope, owner, {"return"}).get("return", MISSING)
    is_async = inspect.iscoroutinefunction(code) or _is_awaitable(returns)
    return Signature(parameters_of(function, scope, owner), _result_type(returns), is_async)


def parameters_of(function: Callable[..., Any], scope: Scope, owner: str) -> tuple[Parameter, ...]:
    """The parameters of a call."""
    code, is_method = code_of(function)
    return _build_parameters(
        code, list(inspect.signature(code).parameters.values())[is_method:], scope, owner
    )


def constructor_of(
    kind: type, scope: Scope, owner: str, *, required_only: bool = False
) -> tuple[Parameter, ...]:
    """The parameters of a class's `__init__`."""
    if not inspect.isfunction(kind.__init__):
        return ()
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    if required_only:
        parameters = [each for each in parameters if each.default is each.empty and each.kind not in VARIADIC]
    return _build_parameters(kind.__init__, parameters, scope, owner)


def code_of(function: Any) -> tuple[Callable[..., Any], bool]:
    """The function that a call executes, and whether its first parameter is `self`."""
    if isinstance(function, type):
        return function.__call__, True
    if inspect.isroutine(function):
        return function, False
    return type(function).__call__, True


def parameter_keys(parameters: Iterable[Parameter]) -> set[Any]:
    return {key for parameter in parameters for key in parameter.request.keys}


def _build_parameters(
    code: Callable[..., Any], parameters: list[inspect.Parameter], scope: Scope, owner: str
) -> tuple[Parameter, ...]:
    hints = hints_of(code, scope, owner, {parameter.name for parameter in parameters})
    return tuple(_parameter(parameter, hints, owner) for parameter in parameters)


def _parameter(parameter: inspect.Parameter, hints: dict[str, Any], owner: str) -> Parameter:
    if parameter.kind in VARIADIC:
        raise DefinitionError(f"{owner}: {parameter} cannot be injected by type; name each parameter")
    if parameter.name not in hints:
        raise DefinitionError(f"{owner}: parameter {parameter.name!r} has no type annotation; add one")
    return Parameter(
        parameter.name,
        request_for(hints[parameter.name]),
        MISSING if parameter.default is parameter.empty else parameter.default,
        parameter.kind is parameter.KEYWORD_ONLY,
    )


def _is_awaitable(returns: Any) -> bool:
    return get_origin(returns) in {Awaitable, Coroutine}


def _result_type(returns: Any) -> Any:
    return get_args(returns)[-1] if _is_awaitable(returns) else returns
