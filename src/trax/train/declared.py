"""Types as they are written in signatures: what they consist of and what to call them."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

UNIONS = frozenset({Union, types.UnionType})


def parts_of(declared: Any) -> tuple[Any, ...] | None:
    """The elements of a declared `tuple[A, B]`; None for anything else, also for `tuple[A, ...]`."""
    declared = written_out(declared)
    if get_origin(declared) is not tuple or Ellipsis in get_args(declared):
        return None
    return get_args(declared)


def members_of(declared: Any) -> tuple[Any, ...]:
    """The alternatives of a declared union, without None; nothing for anything else."""
    declared = written_out(declared)
    if get_origin(declared) not in UNIONS:
        return ()
    return tuple(member for member in get_args(declared) if member is not types.NoneType)


def is_apart(declared: Any) -> bool:
    """Whether values declared like this travel under that one key only, so that two `str` can travel."""
    return isinstance(declared, NewType) or get_origin(declared) is Annotated


def is_unit(declared: Any) -> bool:
    """Whether this declares that there is no value."""
    return written_out(declared) is types.NoneType


def is_typed_dict(declared: Any) -> bool:
    """Also one from `typing_extensions`, which `typing.is_typeddict` does not know."""
    return hasattr(declared, "__total__") and hasattr(declared, "__required_keys__")


def accepts_none(declared: Any) -> bool:
    declared = bare(declared)
    if declared is Any or declared is object or is_unit(declared):
        return True
    return get_origin(declared) in UNIONS and types.NoneType in get_args(declared)


def bare(declared: Any) -> Any:
    """The type below aliases, `Annotated` and `NewType`."""
    declared = written_out(declared)
    if get_origin(declared) is Annotated:
        return bare(get_args(declared)[0])
    return bare(declared.__supertype__) if isinstance(declared, NewType) else declared


def written_out(declared: Any) -> Any:
    """What a `type X = …` statement stands for; anything else as it is."""
    if declared is None:
        return types.NoneType
    return written_out(declared.__value__) if type(declared).__name__ == "TypeAliasType" else declared


def name_of(declared: Any) -> str:
    """A type as a person would write it, without its modules."""
    declared = written_out(declared)
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
