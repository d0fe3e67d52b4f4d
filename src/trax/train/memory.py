"""Memory: the values of one run, by type. The last write wins; values are stored by reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from trax.errors import WiringError, format_value
from trax.train.declared import accepts_none, is_distinct, is_unit, members_of, name_of, parts_of
from trax.train.keys import Key, key_of, runtime_keys

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
    raise WiringError(
        f"{source}: a tuple of {len(elements)} elements cannot be stored; "
        f"it must have {FEWEST_ELEMENTS} to {MOST_ELEMENTS}"
    )


def _none_error(declared: Any, source: str) -> WiringError:
    return WiringError(f"{source} declares {name_of(declared)}, but the value is None")
