"""Under which keys a value travels: what a declared type stands for, and what a value's own type does."""

from __future__ import annotations

import inspect
from abc import ABC
from collections.abc import Hashable
from datetime import date, datetime
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

from trax.errors import DefinitionError
from trax.train.declared import UNIONS, is_apart, name_of, parts_of, written_out

Key: TypeAlias = Hashable
T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P", bound=type)

# A bool is no number and a StrEnum no text on this railway: a value is not found under a plain
# type it merely inherits from, or a flag would be handed to whoever asks for an int.
PLAIN = frozenset({bytearray, bytes, complex, date, datetime, float, int, str, tuple})
UNWIRED = frozenset[Any]({object, Generic, Protocol, ABC})


def key_of(declared: Any) -> Key:
    """The one key a declared type stands for: a class is its own, everything else is told by its parts."""
    declared = written_out(declared)
    origin, parts = get_origin(declared), get_args(declared)
    if origin is None:
        return declared if isinstance(declared, Hashable) else repr(declared)
    if origin is Annotated:
        return (Annotated, key_of(parts[0]), *map(repr, parts[1:]))  # metadata need not be hashable
    if origin in UNIONS:
        return (Union, frozenset(map(key_of, parts)))
    return declared if origin is Literal else (origin, *map(key_of, parts))


@lru_cache(maxsize=4096)
def runtime_keys(kind: type) -> tuple[Key, ...]:
    """Every key a value of exactly this type is found under: its bases and the Protocols it satisfies."""
    bases = [base for base in kind.__mro__ if base not in UNWIRED and (base is kind or base not in PLAIN)]
    protocols = [protocol for protocol in _wired if satisfies(kind, protocol)]
    return tuple(dict.fromkeys([*bases, *protocols]))


def produced_keys(declared: Any) -> set[Key]:
    """Every key that a value declared like this is certain to be found under."""
    parts = parts_of(declared)
    if parts is not None:
        return {key for part in parts for key in produced_keys(part)}
    declared = written_out(declared)
    kind = get_origin(declared) or declared
    if is_apart(declared) or kind in UNIONS or not isinstance(kind, type) or inspect.isabstract(kind):
        return {key_of(declared)}
    return {key_of(declared), *runtime_keys(kind)}


def wired(protocol: P) -> P:
    """Let values be found under this Protocol whenever their class has all its members.

    Only what the class itself shows counts: methods, class attributes and annotated fields. An
    attribute that appears in `__init__` alone is not seen.
    """
    if not is_protocol(protocol):
        raise DefinitionError(
            f"wired({name_of(protocol)}): this is no Protocol; classes are wired as they are"
        )
    _wired[runtime_checkable(protocol)] = None
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
    return fields | (set(dir(protocol)) - _MACHINERY)


@runtime_checkable
class _Blank(Protocol[T_co]):
    """A Protocol without methods: what it has, every Protocol has."""

    nothing: int


_wired: dict[type, None] = {}
_MACHINERY = frozenset(dir(_Blank))
