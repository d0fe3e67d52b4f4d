"""Inspect declared types: elements, union members, aliases and display names."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

UNIONS = frozenset({Union, types.UnionType})


def parts_of(declared: Any) -> tuple[Any, ...] | None:
    """The element types of `tuple[A, B]`; None for any other type, including `tuple[A, ...]`."""
    declared = resolve_alias(declared)
    if get_origin(declared) is not tuple or Ellipsis in get_args(declared):
        return None
    return get_args(declared)


def members_of(declared: Any) -> tuple[Any, ...]:
    """The members of a union, without None; empty for any other type."""
    declared = resolve_alias(declared)
    if get_origin(declared) not in UNIONS:
        return ()
    return tuple(member for member in get_args(declared) if member is not types.NoneType)


def is_distinct(declared: Any) -> bool:
    """Whether values of this type are stored under one key only, so that two kinds of `str` stay apart."""
    return isinstance(declared, NewType) or get_origin(declared) is Annotated


def is_unit(declared: Any) -> bool:
    """Whether this type means "no value": None."""
    return resolve_alias(declared) is types.NoneType


def is_typed_dict(declared: Any) -> bool:
    """Includes TypedDicts of `typing_extensions`, which `typing.is_typeddict` does not recognise."""
    return hasattr(declared, "__total__") and hasattr(declared, "__required_keys__")


def accepts_none(declared: Any) -> bool:
    declared = underlying_type(declared)
    if declared is Any or declared is object or is_unit(declared):
        return True
    return get_origin(declared) in UNIONS and types.NoneType in get_args(declared)


def underlying_type(declared: Any) -> Any:
    """The type without aliases, `Annotated` and `NewType`."""
    declared = resolve_alias(declared)
    if get_origin(declared) is Annotated:
        return underlying_type(get_args(declared)[0])
    return underlying_type(declared.__supertype__) if isinstance(declared, NewType) else declared


def resolve_alias(declared: Any) -> Any:
    """The type that a `type X = …` statement names; any other type unchanged."""
    if declared is None:
        return types.NoneType
    return resolve_alias(declared.__value__) if type(declared).__name__ == "TypeAliasType" else declared


def name_of(declared: Any) -> str:
    """The display name of a type, without its modules."""
    declared = resolve_alias(declared)
    origin, parts = get_origin(declared), get_args(declared)
    if is_unit(declared) or declared is Ellipsis:
        return "None" if is_unit(declared) else "..."
    if origin is None:
        return getattr(declared, "__name__", None) or str(declared)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is Annotated:
        return f"Annotated[{name_of(parts[0])}, {', '.join(map(repr, parts[1:]))}]"
    if origin in UNIONS:
        return " | ".join(map(name_of, parts))
    return f"{name_of(origin)}[{', '.join(map(name_of, parts))}]"
