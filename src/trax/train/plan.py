"""A route made ready to travel: everything that can be decided once, decided once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trax.errors import FieldError, InvalidInput, RunCancelled, RunInterrupted
from trax.train.declared import accepts_none, is_unit, name_of
from trax.train.extract import Extract
from trax.train.instances import matches
from trax.train.keys import Key
from trax.train.memory import MISSING, Memory, Store, Want, recall, wanted, writer
from trax.train.requests import RetryAfter
from trax.train.signature import Parameter, keys_asked_for

if TYPE_CHECKING:
    from trax.train.route import Route, Stop

SHORT_CIRCUIT = object()
NEVER = (object(),)


@dataclass(frozen=True, slots=True)
class Step:
    """One stop, ready: where its arguments are, what to call, and where the result goes.

    `keys` are the quick way to the arguments. They miss on purpose when there is more to it: a class to make,
    a keyword, a tuple to rebuild.
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
        """Whether the route goes on after this: a short circuit that raises has nothing to answer with."""
        if not self.is_short_circuit or isinstance(error, RunCancelled | RunInterrupted | RetryAfter):
            return False
        return isinstance(error, Exception)


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps of a train, with the way in and the way out."""

    name: str
    steps: tuple[Step, ...]
    input_type: Any
    output_type: Any
    first_async: str | None
    asked_for: frozenset[Key]
    _store_input: Store = field(repr=False)
    _output: Want = field(repr=False)

    def take(self, memory: Memory, value: Any) -> None:
        """Put the input into memory."""
        if value is None and not accepts_none(self.input_type):
            message = f"input is None where {name_of(self.input_type)} is wanted"
            raise InvalidInput(f"train {self.name!r} refused its input", [FieldError("", message, None)])
        self._store_input(memory, value)

    def result(self, memory: Memory) -> Any:
        """What the train gives in the end, or MISSING: a short circuit's answer comes first."""
        value = memory.get(SHORT_CIRCUIT, MISSING)
        if value is not MISSING:
            return value
        return None if is_unit(self.output_type) else recall(memory, self._output)


def planned(name: str, route: Route[Any, Any], *, input_type: Any, output_type: Any) -> Plan:
    steps = tuple(_step(stop, output_type) for stop in route.stops)
    return Plan(
        name,
        steps,
        input_type,
        output_type,
        next((stop.does.name for stop in route.stops if _is_async(stop)), None),
        frozenset(
            key for step in steps for key in keys_asked_for((*step.parameters, *(step.constructor or ())))
        ),
        writer(input_type, f"the input of train {name!r}"),
        wanted(output_type),
    )


def input_of(route: Route[Any, Any]) -> Any:
    """What the first stop asks for first."""
    first = route.stops[0].does
    if isinstance(first, Extract):
        return first.source
    parameters = first.signature.parameters
    return parameters[0].want.declared if parameters else None


def output_of(route: Route[Any, Any]) -> Any:
    """What the last stop gives that is no short circuit; of short circuits alone, what the first gives."""
    whole = [stop for stop in route.stops if not stop.is_short_circuit]
    last = (whole[-1] if whole else route.stops[0]).does
    return last.target if isinstance(last, Extract) else last.signature.returns


def _step(stop: Stop, output_type: Any) -> Step:
    does = stop.does
    if isinstance(does, Extract):
        parameters = (Parameter("source", wanted(does.source)),)
        return Step(
            does.name,
            does,
            parameters[0].want.keys[:1],
            parameters,
            writer(does.target, does.name),
            is_async=True,
        )
    signature = does.signature
    store = writer(signature.returns, f"junction {does.name!r}")
    return Step(
        name=does.name,
        call=does.function,
        keys=NEVER if does.is_class else _quick_keys(signature.parameters),
        parameters=signature.parameters,
        store=_answering(store, output_type) if stop.is_short_circuit else store,
        is_async=signature.is_async,
        constructor=does.constructor if does.is_class else None,
        is_short_circuit=stop.is_short_circuit,
    )


def _is_async(stop: Stop) -> bool:
    return not isinstance(stop.does, Extract) and stop.does.signature.is_async


def _quick_keys(parameters: tuple[Parameter, ...]) -> tuple[Key, ...]:
    if any(parameter.is_keyword or parameter.want.parts for parameter in parameters):
        return NEVER
    return tuple(parameter.want.keys[0] for parameter in parameters)


def _answering(store: Store, output_type: Any) -> Store:
    """Store like any junction; an instance of the train's output is also its answer, and None is nothing."""

    def answer(memory: Memory, value: Any) -> None:
        if value is None:
            return
        store(memory, value)
        if matches(value, output_type):
            memory[SHORT_CIRCUIT] = value

    return answer
