"""Routes: junctions joined with `>>`, the check that they fit together, and the plan that is executed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

from trax.errors import (
    DefinitionError,
    FieldError,
    InvalidArgument,
    InvalidInput,
    RetryAfter,
    RouteError,
    RunCancelled,
    RunInterrupted,
    WiringError,
    did_you_mean,
    format_value,
)
from trax.train.annotations import Scope, accepts_none, field_hints, is_unit, name_of, parts_of
from trax.train.context import Cancellation
from trax.train.memory import (
    MISSING,
    Key,
    Memory,
    Parameter,
    Store,
    TypeRequest,
    key_of,
    matches,
    parameter_keys,
    recall,
    request_for,
    static_keys,
    writer,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train.junction import Junction
    from trax.train.services import Services


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
    return ShortCircuit(tuple(stop._replace(is_short_circuit=True) for stop in stops_of(junction)))


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
    """Exclude these junctions from the route check: it cannot see where their inputs come from."""
    stops = tuple(stop._replace(is_checked=False) for stop in stops_of(segment))
    return ShortCircuit(stops) if isinstance(segment, ShortCircuit) else Route(stops)


def stops_of(segment: Any) -> tuple[RouteStop, ...]:
    """The junctions of a part of a route; raises DefinitionError for anything else."""
    stops = getattr(segment, "stops", None)
    if not isinstance(stops, tuple):
        expected = "junctions joined with >>, or one function decorated with @junction"
        raise InvalidArgument("a route", expected, segment)
    return cast("tuple[RouteStop, ...]", stops)


def _couple(
    first: Segment[Any, Any] | ShortCircuit[Any, Any], second: Segment[Any, Any] | ShortCircuit[Any, Any]
) -> Route[Any, Any]:
    if not isinstance(cast("object", second), Segment | ShortCircuit):
        raise DefinitionError(
            f"{format_value(second)} cannot be part of a route; decorate a function with @junction"
        )
    return Route((*first.stops, *second.stops))


class Extract:
    """Reads the first public attribute of `source` that is declared as exactly `target`."""

    __slots__ = ("_attribute", "_scope", "name", "source", "target")

    def __init__(self, source: type, target: Any, scope: Scope) -> None:
        self.name = f"extract({name_of(source)}, {name_of(target)})"
        self.source = source
        self.target = target
        self._scope = scope
        self._attribute: Any = MISSING

    async def __call__(self, source: Any) -> Any:
        """Async only to avoid a thread for reading an attribute; it never awaits."""
        attribute = self.attribute
        value = None if attribute is None else getattr(source, attribute, None)
        if value is None:
            raise WiringError(
                f"{self.name} found no {name_of(self.target)} in {name_of(self.source)}: it takes the first "
                "public attribute declared with exactly that type, and its value must not be None"
            )
        return value

    @property
    def attribute(self) -> str | None:
        """Name of the attribute; resolved on first use, since names in annotations may be defined later."""
        if self._attribute is MISSING:
            key, hints = key_of(self.target), field_hints(self.source, self._scope)
            public = (name for name in hints if not name.startswith("_"))
            self._attribute = next((name for name in public if key_of(hints[name]) == key), None)
            self._scope.close()
        return self._attribute


SHORT_CIRCUIT = object()

NO_QUICK_KEYS = (object(),)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One executable step: where its arguments are, what to call, and how to store the result.

    `keys` find the arguments in memory directly. They never match when more is needed: a class to
    instantiate, a keyword argument, a tuple to build.
    """

    name: str
    call: Callable[..., Any]
    keys: tuple[Key, ...]
    parameters: tuple[Parameter, ...]
    store: Store
    is_async: bool
    constructor: tuple[Parameter, ...] | None = None
    is_short_circuit: bool = False

    def swallows(self, error: BaseException) -> bool:
        """Whether the route continues after this error: a short circuit that raises has no result."""
        if not self.is_short_circuit or isinstance(error, RunCancelled | RunInterrupted | RetryAfter):
            return False
        return isinstance(error, Exception)


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a train, with its input and output."""

    name: str
    steps: tuple[PlanStep, ...]
    input_type: Any
    output_type: Any
    first_async: str | None
    parameter_keys: frozenset[Key]
    _store_input: Store = field(repr=False)
    _output: TypeRequest | None = field(repr=False)
    """How to find the output in memory; None if there is none."""

    def store_input(self, memory: Memory, value: Any) -> None:
        """Store the input in memory."""
        if value is None and not accepts_none(self.input_type):
            message = f"input is None, expected {name_of(self.input_type)}"
            raise InvalidInput(f"train {self.name!r}: invalid input", [FieldError("", message, None)])
        self._store_input(memory, value)

    def find_result(self, memory: Memory) -> Any:
        """The result of the train; the result of a short circuit comes first."""
        value = memory.get(SHORT_CIRCUIT, MISSING)
        if value is MISSING:
            value = None if self._output is None else recall(memory, self._output)
        if value is MISSING:
            output = name_of(self.output_type)
            raise WiringError(f"train {self.name!r} must return {output}, but no junction produced it")
        return value


def build_plan(name: str, route: Route[Any, Any], *, input_type: Any, output_type: Any) -> Plan:
    steps = tuple(_step(stop, output_type) for stop in route.stops)
    return Plan(
        name,
        steps,
        input_type,
        output_type,
        next((stop.action.name for stop in route.stops if _is_async(stop)), None),
        frozenset(
            key for step in steps for key in parameter_keys((*step.parameters, *(step.constructor or ())))
        ),
        writer(input_type, f"the input of train {name!r}"),
        None if is_unit(output_type) else request_for(output_type),
    )


def input_of(route: Route[Any, Any]) -> Any:
    """The type of the first parameter of the first step."""
    first = route.stops[0].action
    if isinstance(first, Extract):
        return first.source
    parameters = first.signature.parameters
    return parameters[0].request.declared if parameters else None


def output_of(route: Route[Any, Any]) -> Any:
    """The return type of the last step that is not a short circuit; if all are, of the first step."""
    whole = [stop for stop in route.stops if not stop.is_short_circuit]
    last = (whole[-1] if whole else route.stops[0]).action
    return last.target if isinstance(last, Extract) else last.signature.returns


def _step(stop: RouteStop, output_type: Any) -> PlanStep:
    does = stop.action
    if isinstance(does, Extract):
        parameters = (Parameter("source", request_for(does.source)),)
        return PlanStep(
            does.name,
            does,
            parameters[0].request.keys[:1],
            parameters,
            writer(does.target, does.name),
            is_async=True,
        )
    signature = does.signature
    store = writer(signature.returns, f"junction {does.name!r}")
    return PlanStep(
        name=does.name,
        call=does.function,
        keys=NO_QUICK_KEYS if does.is_class else _quick_keys(signature.parameters),
        parameters=signature.parameters,
        store=_short_circuit_store(store, output_type) if stop.is_short_circuit else store,
        is_async=signature.is_async,
        constructor=does.constructor if does.is_class else None,
        is_short_circuit=stop.is_short_circuit,
    )


def _is_async(stop: RouteStop) -> bool:
    return not isinstance(stop.action, Extract) and stop.action.signature.is_async


def _quick_keys(parameters: tuple[Parameter, ...]) -> tuple[Key, ...]:
    if any(parameter.is_keyword or parameter.request.parts for parameter in parameters):
        return NO_QUICK_KEYS
    return tuple(parameter.request.keys[0] for parameter in parameters)


def _short_circuit_store(store: Store, output_type: Any) -> Store:
    """Store the result like any junction; if it matches the train's output it is also the train's result."""

    def store_result(memory: Memory, value: Any) -> None:
        if value is None:
            return
        store(memory, value)
        if matches(value, output_type):
            memory[SHORT_CIRCUIT] = value

    return store_result


BUILT_IN = (logging.Logger, Cancellation)


def check_route(
    name: str,
    route: Route[Any, Any],
    *,
    input_type: Any,
    output_type: Any,
    services: Services | None = None,
    extra: Iterable[Any] = (),
) -> list[RouteError]:
    """All problems of a route: CHAIN001 for an input that nothing produces, CHAIN002 for the output."""
    return list(_RouteChecker(name, services, extra).problems(route, input_type, output_type))


class _RouteChecker:
    """Collects the types that are available at each step of a route."""

    def __init__(self, train: str, services: Services | None, extra: Iterable[Any]) -> None:
        self._train = train
        self._keys: set[Key] = {key_of(kind) for kind in BUILT_IN}
        self._names: set[str] = set()
        for kind in [*extra, *(services.kinds if services else ())]:
            self._add(kind, {key_of(kind)})

    def problems(self, route: Route[Any, Any], input_type: Any, output_type: Any) -> Iterator[RouteError]:
        self._add(input_type, static_keys(input_type))
        for stop in route.stops:
            yield from self._problems_at(stop, None if stop is not route.stops[0] else input_type)
            returns = (
                stop.action.target if isinstance(stop.action, Extract) else stop.action.signature.returns
            )
            self._add(returns, static_keys(returns))
        for missing in () if is_unit(output_type) else self._find_missing(request_for(output_type)):
            yield RouteError("CHAIN002", self._output_message(name_of(missing.declared)))

    def _problems_at(self, stop: RouteStop, first_input: Any) -> Iterator[RouteError]:
        """`first_input` is the input of the train if the stop is its first one, else None."""
        if isinstance(stop.action, Extract) or not stop.is_checked:
            return
        others = stop.action.signature.parameters[1:]
        for parameter in (*stop.action.constructor, *stop.action.signature.parameters):
            only_input = first_input if any(parameter is other for other in others) else None
            for missing in () if parameter.is_optional else self._find_missing(parameter.request):
                message = self._input_message(stop, parameter, name_of(missing.declared), only_input)
                yield RouteError("CHAIN001", message)

    def _find_missing(self, request: TypeRequest) -> Iterator[TypeRequest]:
        if request.parts:
            for part in request.parts:
                yield from self._find_missing(part)
        elif not self._keys.intersection(request.keys):
            yield request

    def _input_message(self, stop: RouteStop, parameter: Parameter, missing: str, only_input: Any) -> str:
        needs = f"junction {stop.action.name!r} needs {missing} (parameter {parameter.name!r})"
        service = f"If {missing} is a service, declare it first: app.provide({missing}, …)"
        if not is_unit(only_input):
            return (
                f"train {self._train!r}: {needs}, but a train has one input, here {name_of(only_input)}: put "
                f"several values into one model (a pydantic BaseModel or a dataclass). {service}"
            )
        available = self._available(missing)
        return (
            f"train {self._train!r}: {needs}, but no earlier junction produces it; "
            f"{available}{'' if available.endswith('?') else '.'} {service}"
        )

    def _output_message(self, missing: str) -> str:
        return (
            f"train {self._train!r} must return {missing}, but no junction of its route produces it; "
            f"{self._available(missing)}"
        )

    def _available(self, missing: str) -> str:
        names = ", ".join(sorted(self._names)) or "nothing"
        if missing in self._names:
            return f"available: {names}, where {missing} is another type of the same name"
        return f"available: {names}{did_you_mean(missing, self._names)}"

    def _add(self, declared: Any, keys: set[Key]) -> None:
        self._keys |= keys
        self._names.update(name_of(part) for part in parts_of(declared) or (declared,) if not is_unit(part))
