"""Routes: junctions joined with `>>`; `short_circuit`, `extract` and `unchecked`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

from trax.errors import DefinitionError, format_value
from trax.train.extract import Extract
from trax.train.scope import Scope

if TYPE_CHECKING:
    from trax.train.junction import Junction

In = TypeVar("In")
Out = TypeVar("Out")
Next = TypeVar("Next")
In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class RouteStop(NamedTuple):
    """One step of a route: a junction or an extraction, and how it is treated."""

    action: Junction[Any, Any] | Extract
    is_short_circuit: bool = False
    is_checked: bool = True


class Segment(Generic[In_contra, Out_co]):
    """A part of a route: a junction, or several joined."""

    def __init__(self, stops: tuple[RouteStop, ...]) -> None:
        self._stops = stops

    @property
    def stops(self) -> tuple[RouteStop, ...]:
        return self._stops

    @overload
    def __rshift__(self, other: ShortCircuit[Any, Any]) -> Route[In_contra, Out_co]: ...
    @overload
    def __rshift__(self, other: Segment[Any, Next]) -> Route[In_contra, Next]: ...
    def __rshift__(self, other: Segment[Any, Any] | ShortCircuit[Any, Any]) -> Route[Any, Any]:
        return _couple(self, other)


class Route(Segment[In_contra, Out_co]):
    """Junctions in order: the input of the first goes in, the result of the last comes out."""

    def __repr__(self) -> str:
        return " >> ".join(stop.action.name for stop in self.stops)


class ShortCircuit(Generic[In_contra, Out_co]):
    """A junction that may provide the result of the train; see `short_circuit`."""

    def __init__(self, stops: tuple[RouteStop, ...]) -> None:
        self._stops = stops

    @property
    def stops(self) -> tuple[RouteStop, ...]:
        return self._stops

    @overload
    def __rshift__(self, other: ShortCircuit[Any, Any]) -> Route[In_contra, Out_co]: ...
    @overload
    def __rshift__(self, other: Segment[Any, Next]) -> Route[In_contra, Next]: ...
    def __rshift__(self, other: Segment[Any, Any] | ShortCircuit[Any, Any]) -> Route[Any, Any]:
        return _couple(self, other)


def short_circuit(junction: Junction[In, Out]) -> ShortCircuit[In, Out]:
    """Let this junction provide the train's result early: a cache, a flag, a precondition.

    If it raises or returns None, the route continues. If it returns an instance of the train's output type,
    that becomes the result of the train; the junctions after it still run.
    """
    return ShortCircuit(tuple(stop._replace(is_short_circuit=True) for stop in junction.stops))


def extract(source: type[In], target: type[Out]) -> Route[In, Out]:
    """Store in memory the first public attribute of `source` that is declared as exactly `target`."""
    return Route((RouteStop(Extract(source, target, Scope(source))),))


@overload
def unchecked(segment: ShortCircuit[In, Out]) -> ShortCircuit[In, Out]: ...
@overload
def unchecked(segment: Segment[In, Out]) -> Route[In, Out]: ...
def unchecked(
    segment: Segment[Any, Any] | ShortCircuit[Any, Any],
) -> Route[Any, Any] | ShortCircuit[Any, Any]:
    """Exclude these junctions from the route check: their inputs come from where it cannot see."""
    stops = tuple(stop._replace(is_checked=False) for stop in segment.stops)
    return ShortCircuit(stops) if isinstance(segment, ShortCircuit) else Route(stops)


def _couple(
    first: Segment[Any, Any] | ShortCircuit[Any, Any], second: Segment[Any, Any] | ShortCircuit[Any, Any]
) -> Route[Any, Any]:
    if not isinstance(cast("object", second), Segment | ShortCircuit):
        raise DefinitionError(f"{format_value(second)} cannot be part of a route; decorate it with @junction")
    return Route((*first.stops, *second.stops))
