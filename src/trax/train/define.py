"""Define a train: a name, a route or one function, and options; validated at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from trax.errors import RouteError
from trax.train.check import check_route
from trax.train.junction import junction
from trax.train.memory import MISSING
from trax.train.names import check_name
from trax.train.options import TrainKeywords, TrainOptions
from trax.train.plan import build_plan, input_of, output_of
from trax.train.route import In, Out, Route, Segment
from trax.train.train import Train

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Concatenate, Unpack

    from trax.train.services import Services


NextIn = TypeVar("NextIn")
NextOut = TypeVar("NextOut")


class DefinitionKeywords(TrainKeywords, total=False):
    """The keyword arguments of a train definition: its options, `services` and `extra`.

    `services` are available to its junctions; `extra` are types that each run receives besides its input.
    """

    services: Services | None
    extra: Iterable[Any]


@overload
def train(
    name: str,
    segment: Segment[In, Out],
    **keywords: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train(
    name: str,
    segment: Segment[In, Any],
    *,
    output: type[NextOut],
    **keywords: Unpack[DefinitionKeywords],
) -> Train[In, NextOut]: ...
@overload
def train(
    name: str,
    segment: Segment[Any, Out],
    *,
    input: type[NextIn],
    **keywords: Unpack[DefinitionKeywords],
) -> Train[NextIn, Out]: ...
@overload
def train(
    name: str,
    segment: Segment[Any, Any],
    *,
    input: type[NextIn],
    output: type[NextOut],
    **keywords: Unpack[DefinitionKeywords],
) -> Train[NextIn, NextOut]: ...
def train(
    name: str,
    segment: Segment[Any, Any],
    *,
    input: Any = MISSING,  # noqa: A002 - it reads `train(…, input=Order)`
    output: Any = MISSING,
    **keywords: Unpack[DefinitionKeywords],
) -> Train[Any, Any]:
    """Define a train from a route, and check that its junctions fit together.

    By default the input type is the first parameter of the first junction, and the output type is the return
    type of the last one; `input` and `output` override them.
    """
    check_name(name)
    services, extra = keywords.pop("services", None), tuple(keywords.pop("extra", ()))
    whole: Route[Any, Any] = Route(segment.stops)
    types = {
        "input_type": input_of(whole) if input is MISSING else input,
        "output_type": output_of(whole) if output is MISSING else output,
    }
    _raise_problems(check_route(name, whole, services=services, extra=extra, **types))
    options = TrainOptions(**cast("TrainKeywords", keywords))
    return Train(name, whole, options, services, extra, build_plan(name, whole, **types))


@overload
def train_of(
    function: Callable[Concatenate[In, ...], Awaitable[Out]],
    /,
    name: str | None = None,
    **keywords: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train_of(
    function: Callable[[], Awaitable[Out]], /, name: str | None = None, **keywords: Unpack[DefinitionKeywords]
) -> Train[None, Out]: ...
@overload
def train_of(
    function: Callable[Concatenate[In, ...], Out],
    /,
    name: str | None = None,
    **keywords: Unpack[DefinitionKeywords],
) -> Train[In, Out]: ...
@overload
def train_of(
    function: Callable[[], Out], /, name: str | None = None, **keywords: Unpack[DefinitionKeywords]
) -> Train[None, Out]: ...
def train_of(
    function: Any, /, name: str | None = None, **keywords: Unpack[DefinitionKeywords]
) -> Train[Any, Any]:
    """Define a train from one function; its default name is that of the function."""
    step = junction(function)
    return train(name or step.name, step, **keywords)


def _raise_problems(problems: list[RouteError]) -> None:
    """Raise the problems of a route as one RouteError."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        code, first = str(problems[0]).split(": ", 1)
        raise RouteError(code, "\n".join([first, *map(str, problems[1:])]))
