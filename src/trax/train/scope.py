"""Resolve annotations to types, with the global and local names of the code they are written in.

Under `from __future__ import annotations` every annotation is text. Its names may be local to a function
that is still running (a test, a notebook cell, a factory of junctions), so the frames around a local
definition are kept until the annotations have been read, and no longer.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, get_type_hints

from trax.errors import DefinitionError

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
