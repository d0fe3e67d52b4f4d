"""The memory of a run: values by type, the keys of types, and signatures, which say what is needed."""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    runtime_checkable,
)

from trax.errors import DefinitionError, WiringError, format_value
from trax.train.annotations import (
    UNIONS,
    accepts_none,
    hints_of,
    is_distinct,
    is_typed_dict,
    is_unit,
    members_of,
    name_of,
    parts_of,
    resolve_alias,
    underlying_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trax.train.annotations import Scope


Key: TypeAlias = Hashable
T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P", bound=type)

# A value is not stored under a plain type that it merely inherits from: otherwise a bool would be passed to
# a junction that needs an int, or a StrEnum to one that needs a str.
PLAIN_TYPES = frozenset({bytearray, bytes, complex, date, datetime, float, int, str, tuple})
UNWIRED_BASES = frozenset[Any]({object, Generic, Protocol, ABC})


def key_of(declared: Any) -> Key:
    """The memory key of a declared type: a class is its own key, any other type is keyed by its parts."""
    if not isinstance(declared, type):
        declared = resolve_alias(declared)
    origin, parts = get_origin(declared), get_args(declared)
    if origin is None:
        return declared if isinstance(declared, Hashable) else repr(declared)
    if origin is Annotated:
        return (Annotated, key_of(parts[0]), *map(repr, parts[1:]))  # metadata may be unhashable
    if origin in UNIONS:
        return (Union, frozenset(map(key_of, parts)))
    return declared if origin is Literal else (origin, *map(key_of, parts))


@lru_cache(maxsize=4096)
def runtime_keys(kind: type) -> tuple[Key, ...]:
    """All keys for a value of exactly this type: its bases and the registered Protocols it satisfies."""
    bases = [
        base
        for base in kind.__mro__
        if base not in UNWIRED_BASES and (base is kind or base not in PLAIN_TYPES)
    ]
    protocols = [protocol for protocol in _wired_protocols if satisfies(kind, protocol)]
    return tuple(dict.fromkeys([*bases, *protocols]))


def static_keys(declared: Any) -> set[Key]:
    """All keys that a value of this declared type is certain to have."""
    parts = parts_of(declared)
    if parts is not None:
        return {key for part in parts for key in static_keys(part)}
    declared = resolve_alias(declared)
    kind = get_origin(declared) or declared
    if is_distinct(declared) or kind in UNIONS or not isinstance(kind, type) or inspect.isabstract(kind):
        return {key_of(declared)}
    return {key_of(declared), *runtime_keys(kind)}


def wired(protocol: P) -> P:
    """Register a Protocol: values whose class has all its members are found by it.

    Only methods, class attributes and annotated fields of the class count. An attribute that is
    only assigned in `__init__` does not.
    """
    if not is_protocol(protocol):
        raise DefinitionError(f"wired({name_of(protocol)}): not a Protocol; classes need no registration")
    _wired_protocols[runtime_checkable(protocol)] = None
    runtime_keys.cache_clear()
    return protocol


def is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False)) and kind is not Protocol


def satisfies(kind: type, protocol: type) -> bool:
    fields = {field for base in kind.__mro__ for field in inspect.get_annotations(base)}
    return all(hasattr(kind, member) or member in fields for member in _members(protocol))


def _members(protocol: type) -> set[str]:
    bases = filter(is_protocol, protocol.__mro__)
    fields = {field for base in bases for field in inspect.get_annotations(base)}
    return fields | (set(dir(protocol)) - _PROTOCOL_INTERNALS)


@runtime_checkable
class _Blank(Protocol[T_co]):
    """An empty Protocol, to find the attributes that every Protocol has."""

    nothing: int


_wired_protocols: dict[type, None] = {}
_PROTOCOL_INTERNALS = frozenset(dir(_Blank))


def matches(value: Any, declared: Any) -> bool:
    declared = underlying_type(declared)
    origin = get_origin(declared)
    if origin is Literal:
        return value in get_args(declared)
    if origin in UNIONS:
        return any(matches(value, member) for member in get_args(declared))
    parts = parts_of(declared)
    if parts is not None:
        return isinstance(value, tuple) and _all_match(cast("tuple[Any, ...]", value), parts)
    return _is_instance(value, origin or declared)


def _all_match(values: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    return len(values) == len(parts) and all(map(matches, values, parts))


def _is_instance(value: object, kind: Any) -> bool:
    if kind is Any or not isinstance(kind, type):
        return True
    if kind in PLAIN_TYPES:
        return kind in runtime_keys(type(value))
    if is_typed_dict(kind):
        return isinstance(value, dict)
    if is_protocol(kind):
        return satisfies(value.__class__, kind)  # `__class__` of a test double is the class it replaces
    return isinstance(value, kind)


Memory: TypeAlias = dict[Key, Any]
Store: TypeAlias = Callable[[Memory, Any], None]

MISSING: Final[Any] = object()
FEWEST_ELEMENTS, MOST_ELEMENTS = 2, 7


@dataclass(frozen=True, slots=True)
class TypeRequest:
    """A requested type: the keys to look for, best first, or the element types to build a tuple from."""

    declared: Any
    keys: tuple[Key, ...]
    parts: tuple[TypeRequest, ...] = ()


def request_for(declared: Any) -> TypeRequest:
    alternatives = (key_of(member) for member in members_of(declared))
    parts = tuple(request_for(part) for part in parts_of(declared) or ())
    return TypeRequest(declared, (key_of(declared), *alternatives), parts)


def recall(memory: Memory, request: TypeRequest) -> Any:
    """The value for a requested type, or MISSING."""
    if request.parts:
        values = tuple(recall(memory, part) for part in request.parts)
        return MISSING if any(value is MISSING for value in values) else values
    for key in request.keys:
        if key in memory:
            return memory[key]
    return MISSING


def writer(declared: Any, source: str) -> Store:
    """Build the function that stores results of `source` in memory, from their declared type.

    A declared `tuple[A, B]` (or a bare `tuple`) is split into its elements. `tuple[A, ...]`, a
    NamedTuple, and a tuple inside `Annotated` or `NewType` are stored as one value.
    """
    if is_unit(declared):
        return _store_nothing
    parts = parts_of(declared)
    if parts is not None:
        return _store_elements(tuple(writer(part, source) for part in parts), name_of(declared), source)
    if declared is tuple:
        return _store_untyped(source)
    return _store_distinct(declared, source) if is_distinct(declared) else _store_value(declared, source)


def _store_nothing(_memory: Memory, _value: Any) -> None:
    return


def _store_value(declared: Any, source: str) -> Store:
    key, refuse_none = key_of(declared), not accepts_none(declared)

    def store(memory: Memory, value: object) -> None:
        if value is not None:
            for runtime_key in runtime_keys(type(value)):
                memory[runtime_key] = value
        elif refuse_none:
            raise _none_error(declared, source)
        memory[key] = value

    return store


def _store_distinct(declared: Any, source: str) -> Store:
    key, refuse_none = key_of(declared), not accepts_none(declared)

    def store(memory: Memory, value: Any) -> None:
        if value is None and refuse_none:
            raise _none_error(declared, source)
        memory[key] = value

    return store


def _store_elements(stores: tuple[Store, ...], name: str, source: str) -> Store:
    def split(memory: Memory, value: Any) -> None:
        elements = _elements(value, source)
        if len(elements) != len(stores):
            raise WiringError(f"{source} declares {name}, but the value has {len(elements)} elements")
        for store, element in zip(stores, elements, strict=True):
            store(memory, element)

    return split


def _store_untyped(source: str) -> Store:
    def split(memory: Memory, value: Any) -> None:
        for element in _elements(value, source):
            writer(type(element), source)(memory, element)
        memory[tuple] = value  # the tuple itself can be requested too

    return split


def _elements(value: Any, source: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise WiringError(f"{source} declares a tuple, but the value is {format_value(value)}")
    elements = cast("tuple[Any, ...]", value)
    if FEWEST_ELEMENTS <= len(elements) <= MOST_ELEMENTS:
        return elements
    raise WiringError(f"{source}: {_wrong_count(len(elements))}")


def _wrong_count(count: int) -> str:
    return f"a tuple of {count} elements cannot be stored; it must have {FEWEST_ELEMENTS} to {MOST_ELEMENTS}"


def _none_error(declared: Any, source: str) -> WiringError:
    return WiringError(f"{source} declares {name_of(declared)}, but the value is None")


WAYS_OUT: Final = (
    "put them into one model with a field for each (a pydantic BaseModel or a dataclass), or, if earlier "
    "junctions return them, give each a type of its own there and here, such as Annotated[str, 'subject']"
)

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
    built = tuple(_parameter(parameter, hints, owner) for parameter in parameters)
    _refuse_equal_types(built, owner)
    return built


def _refuse_equal_types(parameters: Sequence[Parameter], owner: str) -> None:
    """Values are found by type, so two parameters of one type would both get the same value."""
    first_of: dict[Key, Parameter] = {}
    for parameter in parameters:
        declared = parameter.request.declared
        check_elements(declared, f"{owner}: parameter {parameter.name!r}")
        first = first_of.setdefault(_key_without_none(declared), parameter)
        if first is not parameter:
            kind = min(name_of(first.request.declared), name_of(declared), key=len)  # `str`, not `str | None`
            raise DefinitionError(
                f"{owner}: parameters {first.name!r} and {parameter.name!r} are both {kind}, "
                f"and would both get the same value; {WAYS_OUT}"
            )


def check_elements(declared: Any, place: str) -> None:
    """Refuse `tuple[A, A]`: its elements are stored by type, so one would replace the other."""
    parts = parts_of(declared)
    if parts is None:
        return
    if not FEWEST_ELEMENTS <= len(parts) <= MOST_ELEMENTS:
        raise DefinitionError(f"{place}: {name_of(declared)}: {_wrong_count(len(parts))}")
    keys = [_key_without_none(part) for part in parts]
    repeated = next((part for part, key in zip(parts, keys, strict=True) if keys.count(key) > 1), MISSING)
    if repeated is not MISSING and not is_unit(repeated):
        raise DefinitionError(
            f"{place}: {name_of(declared)} has more than one {name_of(repeated)}, and all would get the same "
            f"value, since each element is stored by its type; {WAYS_OUT}"
        )
    for part in parts:
        check_elements(part, place)


def _key_without_none(declared: Any) -> Key:
    """The key of a type without None: `str` and `str | None` are filled from the same value."""
    members = members_of(declared)
    return frozenset(map(key_of, members)) if members else frozenset({key_of(declared)})


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
