"""Check at run time whether a value matches a declared type, as far as possible."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args, get_origin

from trax.train.declared import UNIONS, is_typed_dict, parts_of, underlying_type
from trax.train.keys import PLAIN_TYPES, is_protocol, runtime_keys, satisfies


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
