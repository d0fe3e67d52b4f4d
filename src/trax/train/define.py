"""Defining a train: a name, a route or one function, and its options, checked at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from trax.errors import RouteError
from trax.train.check import check_route
from trax.train.junction import junction
from trax.train.memory import MISSING
from trax.train.names import check_name
from trax.train.options import TrainKeywords, TrainOptions
from trax.train.plan import input_of, output_of, planned
from trax.train.route import In, Out, Route, Segment
from trax.train.train import Train

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Concatenate, Unpack

    from trax.train.services import Services


NextIn = TypeVar("NextIn")
NextOut = TypeVar("NextOut")


class DefinitionKeywords(TrainKeywords, total=False):
    """What may be said when a train is defined, as keyword arguments.

    Its junctions may ask for `services`; `extra` are the types that each run is handed beside its input.
    """

    services: Services | None
    extra: Iterable[Any]


@overload
def train(
    name: str,
    segment: Segment[In, Out],
    **how: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train(
    name: str,
    segment: Segment[In, Any],
    *,
    output: type[NextOut],
    **how: Unpack[DefinitionKeywords],
) -> Train[In, NextOut]: ...
@overload
def train(
    name: str,
    segment: Segment[Any, Out],
    *,
    input: type[NextIn],
    **how: Unpack[DefinitionKeywords],
) -> Train[NextIn, Out]: ...
@overload
def train(
    name: str,
    segment: Segment[Any, Any],
    *,
    input: type[NextIn],
    output: type[NextOut],
    **how: Unpack[DefinitionKeywords],
) -> Train[NextIn, NextOut]: ...
def train(
    name: str,
    segment: Segment[Any, Any],
    *,
    input: Any = MISSING,  # noqa: A002 - it reads `train(…, input=Order)`
    output: Any = MISSING,
    **how: Unpack[DefinitionKeywords],
) -> Train[Any, Any]:
    """Name a route, and check that its junctions fit together.

    The input is what the first junction asks for first, the output what the last one gives, unless `input`
    and `output` say otherwise.
    """
    check_name(name)
    services, extra = how.pop("services", None), tuple(how.pop("extra", ()))
    whole: Route[Any, Any] = Route(segment.stops)
    ends = {
        "input_type": input_of(whole) if input is MISSING else input,
        "output_type": output_of(whole) if output is MISSING else output,
    }
    _refuse(check_route(name, whole, services=services, extra=extra, **ends))
    options = TrainOptions(**cast("TrainKeywords", how))
    return Train(name, whole, options, services, extra, planned(name, whole, **ends))


@overload
def train_of(
    function: Callable[Concatenate[In, ...], Awaitable[Out]],
    /,
    name: str | None = None,
    **how: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train_of(
    function: Callable[[], Awaitable[Out]], /, name: str | None = None, **how: Unpack[DefinitionKeywords]
) -> Train[None, Out]: ...
@overload
def train_of(
    function: Callable[Concatenate[In, ...], Out],
    /,
    name: str | None = None,
    **how: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train_of(
    function: Callable[[], Out], /, name: str | None = None, **how: Unpack[DefinitionKeywords]
) -> Train[None, Out]: ...
def train_of(function: Any, /, name: str | None = None, **how: Unpack[DefinitionKeywords]) -> Train[Any, Any]:
    """A train of one junction, named like the function unless a name is given."""
    step = junction(function)
    return train(name or step.name, step, **how)


def _refuse(problems: list[RouteError]) -> None:
    """Raise what is wrong with a route; several problems are told together."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        code, first = str(problems[0]).split(": ", 1)
        raise RouteError(code, "\n".join([first, *map(str, problems[1:])]))
