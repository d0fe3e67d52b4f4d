"""Resolve annotations to types, with the names of the code they are written in, and inspect these types.

Under `from __future__ import annotations` every annotation is text. Its names may be local to a function
that is still running (a test, a notebook cell, a factory of junctions), so the frames around a local
definition are kept until the annotations have been read, and no longer.
"""

from __future__ import annotations

import inspect
import sys
import types
from contextlib import suppress
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NewType,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from trax.errors import DefinitionError, format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Container


LOCAL = ".<locals>."
Namespaces: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


class Scope:
    """The local names around a definition; created where it is defined, used to resolve annotations."""

    __slots__ = ("_frames",)

    def __init__(self, definition: Any) -> None:
        """Keep the running frames around a local function or class."""
        qualname = getattr(definition, "__qualname__", None) or type(definition).__qualname__
        self._frames = _find_enclosing_frames(getattr(definition, "__module__", ""), qualname)

    @property
    def names(self) -> dict[str, Any]:
        """All local names defined so far; the innermost frame wins."""
        return {name: value for frame in reversed(self._frames) for name, value in frame.f_locals.items()}

    def close(self) -> None:
        """Release the frames, which may reference much memory."""
        self._frames = ()


def hints_of(function: Callable[..., Any], scope: Scope, owner: str, only: Container[str]) -> dict[str, Any]:
    """The annotations of a function as types, including `return`, limited to the names in `only`."""
    annotations = inspect.get_annotations(function)
    places = getattr(inspect.unwrap(function), "__globals__", {}), {**scope.names, **_closure_names(function)}
    return {name: _hint(name, annotations[name], places, owner) for name in annotations if name in only}


def field_hints(kind: type, scope: Scope) -> dict[str, Any]:
    """The annotated attributes of a class in declaration order, without those that cannot be resolved."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules.get(base.__module__)
        for name, annotation in inspect.get_annotations(base).items():
            with suppress(Exception):  # an annotation can contain any text
                hints[name] = _resolve(name, annotation, (vars(module) if module else {}, scope.names))
    return hints


def _find_enclosing_frames(module: str, qualname: str) -> tuple[FrameType, ...]:
    if LOCAL not in qualname:
        return ()
    frame, frames = inspect.currentframe(), list[FrameType]()
    while frame is not None:
        is_around = qualname.startswith(frame.f_code.co_qualname + LOCAL)
        if is_around and frame.f_globals.get("__name__") == module:
            frames.append(frame)
        frame = frame.f_back
    return tuple(frames)


def _closure_names(function: Any) -> dict[str, Any]:
    code = inspect.unwrap(getattr(function, "__func__", function))
    names: dict[str, Any] = {}
    if inspect.isfunction(code):
        for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
            with suppress(ValueError):  # the cell is still empty
                names[name] = cell.cell_contents
    return names


def _hint(name: str, annotation: Any, namespaces: Namespaces, owner: str) -> Any:
    try:
        return _resolve(name, annotation, namespaces)
    except Exception as error:
        what = "return type" if name == "return" else f"parameter {name!r}"
        hint = "; is it imported under TYPE_CHECKING only?" if isinstance(error, NameError) else ""
        message = f"{owner}: cannot read the annotation {annotation!r} of {what}: {error}{hint}"
        raise DefinitionError(message) from error


def _resolve(name: str, annotation: Any, namespaces: Namespaces) -> Any:
    holder = SimpleNamespace(__annotations__={name: annotation})
    return get_type_hints(holder, *namespaces, include_extras=True)[name]


def definition_place() -> str | None:
    """File and line of the code outside Trax that is calling it now, such as `jobs.py:12`."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "trax":
        frame = frame.f_back
    return None if frame is None else format_place(frame.f_code.co_filename, frame.f_lineno)


def format_place(filename: str, line: int) -> str:
    """A line of code for a message: its file relative to the current folder."""
    file = Path(filename)
    short = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{short}:{line}"


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
        return getattr(declared, "__name__", None) or format_value(declared)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is Annotated:
        return f"Annotated[{name_of(parts[0])}, {', '.join(map(repr, parts[1:]))}]"
    if origin in UNIONS:
        return " | ".join(map(name_of, parts))
    return f"{name_of(origin)}[{', '.join(map(name_of, parts))}]"
