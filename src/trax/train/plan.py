"""The executable plan of a route: everything that can be prepared before a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trax.errors import FieldError, InvalidInput, RunCancelled, RunInterrupted
from trax.train.declared import accepts_none, is_unit, name_of
from trax.train.extract import Extract
from trax.train.instances import matches
from trax.train.keys import Key
from trax.train.memory import MISSING, Memory, Store, TypeRequest, recall, request_for, writer
from trax.train.requests import RetryAfter
from trax.train.signature import Parameter, parameter_keys

if TYPE_CHECKING:
    from trax.train.route import Route, RouteStop

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
    _output: TypeRequest = field(repr=False)

    def store_input(self, memory: Memory, value: Any) -> None:
        """Store the input in memory."""
        if value is None and not accepts_none(self.input_type):
            message = f"input is None, expected {name_of(self.input_type)}"
            raise InvalidInput(f"train {self.name!r}: invalid input", [FieldError("", message, None)])
        self._store_input(memory, value)

    def result(self, memory: Memory) -> Any:
        """The result of the train, or MISSING; the result of a short circuit comes first."""
        value = memory.get(SHORT_CIRCUIT, MISSING)
        if value is not MISSING:
            return value
        return None if is_unit(self.output_type) else recall(memory, self._output)


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
        request_for(output_type),
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
