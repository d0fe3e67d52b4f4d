"""Routes: junctions coupled with `>>`, and the marks that change how one of them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

from trax.errors import DefinitionError, shown
from trax.train.extract import Extract
from trax.train.scope import Scope

if TYPE_CHECKING:
    from trax.train.junction import Junction

In = TypeVar("In")
Out = TypeVar("Out")
Next = TypeVar("Next")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Stop(NamedTuple):
    """One place on a route: a junction or an extraction, and how it counts."""

    does: Junction[Any, Any] | Extract
    is_short_circuit: bool = False
    is_checked: bool = True


class Segment(Generic[In_contra, Out_co]):
    """Anything that can stand in a route: a junction, or a route of several."""

    def __init__(self, stops: tuple[Stop, ...]) -> None:
        self._stops = stops

    @property
    def stops(self) -> tuple[Stop, ...]:
        return self._stops

    @overload
    def __rshift__(self, other: ShortCircuit[Any, Any]) -> Route[In_contra, Out_co]: ...
    @overload
    def __rshift__(self, other: Segment[Any, Next]) -> Route[In_contra, Next]: ...
    def __rshift__(self, other: Segment[Any, Any] | ShortCircuit[Any, Any]) -> Route[Any, Any]:
        return _coupled(self, other)


class Route(Segment[In_contra, Out_co]):
    """Junctions in their order: what the first asks for goes in, what the last gives comes out."""

    def __repr__(self) -> str:
        return " >> ".join(stop.does.name for stop in self.stops)


class ShortCircuit(Generic[In_contra, Out_co]):
    """A junction that may answer for the whole train; see `short_circuit`."""

    def __init__(self, stops: tuple[Stop, ...]) -> None:
        self._stops = stops

    @property
    def stops(self) -> tuple[Stop, ...]:
        return self._stops

    @overload
    def __rshift__(self, other: ShortCircuit[Any, Any]) -> Route[In_contra, Out_co]: ...
    @overload
    def __rshift__(self, other: Segment[Any, Next]) -> Route[In_contra, Next]: ...
    def __rshift__(self, other: Segment[Any, Any] | ShortCircuit[Any, Any]) -> Route[Any, Any]:
        return _coupled(self, other)


def short_circuit(junction: Junction[In, Out]) -> ShortCircuit[In, Out]:
    """Try this junction for the train's result: a cache, a flag, a precondition.

    When it raises or gives None there is nothing to answer with, and the route goes on. When what it gives
    is an instance of the train's output, that becomes the result; the junctions after it still run.
    """
    return ShortCircuit(tuple(stop._replace(is_short_circuit=True) for stop in junction.stops))


def extract(source: type[In], target: type[Out]) -> Route[In, Out]:
    """Take the first public attribute of `source` that is declared as exactly `target` into memory."""
    return Route((Stop(Extract(source, target, Scope(source))),))


@overload
def unchecked(segment: ShortCircuit[In, Out]) -> ShortCircuit[In, Out]: ...
@overload
def unchecked(segment: Segment[In, Out]) -> Route[In, Out]: ...
def unchecked(
    segment: Segment[Any, Any] | ShortCircuit[Any, Any],
) -> Route[Any, Any] | ShortCircuit[Any, Any]:
    """Leave the junctions in here out of the route check: their inputs come from where it cannot look."""
    stops = tuple(stop._replace(is_checked=False) for stop in segment.stops)
    return ShortCircuit(stops) if isinstance(segment, ShortCircuit) else Route(stops)


def _coupled(
    first: Segment[Any, Any] | ShortCircuit[Any, Any], second: Segment[Any, Any] | ShortCircuit[Any, Any]
) -> Route[Any, Any]:
    if not isinstance(cast("object", second), Segment | ShortCircuit):
        raise DefinitionError(f"{shown(second)} cannot stand in a route; make it a junction with @junction")
    return Route((*first.stops, *second.stops))
