"""What the names in an annotation mean: the globals of the code they stand in, and its local names.

Under `from __future__ import annotations` every annotation is text. The names in it may belong to a
function that is still running (a test, a notebook cell, a factory of junctions), so the frames around
a local definition are kept until the annotations have been read, and no longer.
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
Places: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


class Scope:
    """Where a definition stands. Made where it is defined, asked when its annotations are needed."""

    __slots__ = ("_frames",)

    def __init__(self, defined: Any) -> None:
        """Keep the running frames that a function or class is local to."""
        qualname = getattr(defined, "__qualname__", None) or type(defined).__qualname__
        self._frames = _enclosing(getattr(defined, "__module__", ""), qualname)

    @property
    def names(self) -> dict[str, Any]:
        """Every local name there is by now, the innermost winning."""
        return {name: value for frame in reversed(self._frames) for name, value in frame.f_locals.items()}

    def close(self) -> None:
        """Let go of the frames, which may hold on to a lot."""
        self._frames = ()


def hints_of(function: Callable[..., Any], scope: Scope, owner: str, only: Container[str]) -> dict[str, Any]:
    """The annotations of a function as types, `return` among them, as far as `only` asks for them."""
    annotations = inspect.get_annotations(function)
    places = getattr(inspect.unwrap(function), "__globals__", {}), {**scope.names, **_closed_over(function)}
    return {name: _hint(name, annotations[name], places, owner) for name in annotations if name in only}


def field_hints(kind: type, scope: Scope) -> dict[str, Any]:
    """The annotated attributes of a class in declaration order, leaving out what cannot be resolved."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules.get(base.__module__)
        for name, annotation in inspect.get_annotations(base).items():
            with suppress(Exception):  # any text can stand in an annotation
                hints[name] = _resolved(name, annotation, (vars(module) if module else {}, scope.names))
    return hints


def _enclosing(module: str, qualname: str) -> tuple[FrameType, ...]:
    if LOCAL not in qualname:
        return ()
    frame, frames = inspect.currentframe(), list[FrameType]()
    while frame is not None:
        is_around = qualname.startswith(frame.f_code.co_qualname + LOCAL)
        if is_around and frame.f_globals.get("__name__") == module:
            frames.append(frame)
        frame = frame.f_back
    return tuple(frames)


def _closed_over(function: Any) -> dict[str, Any]:
    code = inspect.unwrap(getattr(function, "__func__", function))
    names: dict[str, Any] = {}
    if inspect.isfunction(code):
        for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
            with suppress(ValueError):  # nothing is in there yet
                names[name] = cell.cell_contents
    return names


def _hint(name: str, annotation: Any, places: Places, owner: str) -> Any:
    try:
        return _resolved(name, annotation, places)
    except Exception as error:
        what = "return type" if name == "return" else f"parameter {name!r}"
        hint = "; is it imported under TYPE_CHECKING only?" if isinstance(error, NameError) else ""
        message = f"{owner}: cannot read the annotation {annotation!r} of {what}: {error}{hint}"
        raise DefinitionError(message) from error


def _resolved(name: str, annotation: Any, places: Places) -> Any:
    one = SimpleNamespace(__annotations__={name: annotation})
    return get_type_hints(one, *places, include_extras=True)[name]
