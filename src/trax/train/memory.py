"""Memory: the values of one run, by type. Last write wins; values are held by reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from trax.errors import WiringError, shown
from trax.train.declared import accepts_none, is_apart, is_unit, members_of, name_of, parts_of
from trax.train.keys import Key, key_of, runtime_keys

Memory: TypeAlias = dict[Key, Any]
Store: TypeAlias = Callable[[Memory, Any], None]

MISSING: Final[Any] = object()
FEWEST_ELEMENTS, MOST_ELEMENTS = 2, 7


@dataclass(frozen=True, slots=True)
class Want:
    """A type someone asks for: the keys that answer it, best first, or the parts to rebuild it from."""

    declared: Any
    keys: tuple[Key, ...]
    parts: tuple[Want, ...] = ()


def wanted(declared: Any) -> Want:
    alternatives = (key_of(member) for member in members_of(declared))
    parts = tuple(wanted(part) for part in parts_of(declared) or ())
    return Want(declared, (key_of(declared), *alternatives), parts)


def recall(memory: Memory, want: Want) -> Any:
    """The value that answers a want, or MISSING."""
    if want.parts:
        values = tuple(recall(memory, part) for part in want.parts)
        return MISSING if any(value is MISSING for value in values) else values
    for key in want.keys:
        if key in memory:
            return memory[key]
    return MISSING


def writer(declared: Any, source: str) -> Store:
    """How to put what `source` gives into memory, decided once from the type it declares.

    A declared `tuple[A, B]` (or a bare `tuple`) is split into its elements. `tuple[A, ...]` and a
    NamedTuple are values like any other, and so is a tuple below an `Annotated` or a `NewType`.
    """
    if is_unit(declared):
        return _forget
    parts = parts_of(declared)
    if parts is not None:
        return _split(tuple(writer(part, source) for part in parts), name_of(declared), source)
    if declared is tuple:
        return _split_untyped(source)
    return _keep_apart(declared, source) if is_apart(declared) else _keep(declared, source)


def _forget(_memory: Memory, _value: Any) -> None:
    return


def _keep(declared: Any, source: str) -> Store:
    key, refuse_none = key_of(declared), not accepts_none(declared)

    def keep(memory: Memory, value: object) -> None:
        if value is not None:
            for runtime_key in runtime_keys(type(value)):
                memory[runtime_key] = value
        elif refuse_none:
            raise _nothing(declared, source)
        memory[key] = value

    return keep


def _keep_apart(declared: Any, source: str) -> Store:
    key, refuse_none = key_of(declared), not accepts_none(declared)

    def keep_apart(memory: Memory, value: Any) -> None:
        if value is None and refuse_none:
            raise _nothing(declared, source)
        memory[key] = value

    return keep_apart


def _split(stores: tuple[Store, ...], name: str, source: str) -> Store:
    def split(memory: Memory, value: Any) -> None:
        elements = _elements(value, source)
        if len(elements) != len(stores):
            raise WiringError(f"{source} gave {len(elements)} elements where it declares {name}")
        for store, element in zip(stores, elements, strict=True):
            store(memory, element)

    return split


def _split_untyped(source: str) -> Store:
    def split(memory: Memory, value: Any) -> None:
        for element in _elements(value, source):
            writer(type(element), source)(memory, element)
        memory[tuple] = value  # what was declared can be asked for, though not rebuilt

    return split


def _elements(value: Any, source: str) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise WiringError(f"{source} declares a tuple, but gave {shown(value)}")
    elements = cast("tuple[Any, ...]", value)
    if FEWEST_ELEMENTS <= len(elements) <= MOST_ELEMENTS:
        return elements
    raise WiringError(
        f"{source} gave a tuple of {len(elements)}; "
        f"one of {FEWEST_ELEMENTS} to {MOST_ELEMENTS} elements can be split into memory"
    )


def _nothing(declared: Any, source: str) -> WiringError:
    return WiringError(f"{source} declares {name_of(declared)}, but gave None")
