"""The memory keys of declared types and of values; `wired` registers a Protocol as a key."""

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
from trax.train.declared import UNIONS, is_distinct, name_of, parts_of, resolve_alias

Key: TypeAlias = Hashable
T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P", bound=type)

# A value is not stored under a plain type that it merely inherits from: otherwise a bool would be passed to
# a junction that needs an int, or a StrEnum to one that needs a str.
PLAIN_TYPES = frozenset({bytearray, bytes, complex, date, datetime, float, int, str, tuple})
UNWIRED_BASES = frozenset[Any]({object, Generic, Protocol, ABC})


def key_of(declared: Any) -> Key:
    """The memory key of a declared type: a class is its own key, any other type is keyed by its parts."""
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
