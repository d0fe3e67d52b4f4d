"""Train: a named route that can be run, with or without a database; and the registry of an app's trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from trax.errors import DefinitionError, InvalidArgument, RouteError, UnknownTrain, did_you_mean
from trax.train.annotations import definition_place
from trax.train.junction import junction
from trax.train.memory import MISSING, check_elements
from trax.train.options import TrainKeywords, TrainOptions, build_options, check_name, check_not_reserved
from trax.train.outcome import result_of
from trax.train.route import (
    In,
    In_contra,
    Out,
    Out_co,
    Plan,
    Route,
    Segment,
    build_plan,
    check_route,
    input_of,
    output_of,
    stops_of,
)
from trax.train.run import StepLoop, TrainRun, compile_steps
from trax.train.services import Services

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
    from typing import Concatenate, Unpack

    from trax.train.outcome import Outcome
    from trax.train.run import Observer, TrainRunKeywords


_QUEUE: Final = "queue a job with `await app.queue({0}, value)`, or, blocking, `app.sync.queue({0}, value)`"
_CHAIN: Final = "run it after another one with `app.schedule(…).then_include({0}, external_id, value)`"
FOREIGN_VERBS: Final = {
    **dict.fromkeys(("delay", "defer", "enqueue", "kiq", "queue", "send", "submit"), _QUEUE),
    "apply_async": _QUEUE + "; `delay=timedelta(…)`, `priority=` and `group=` are options of it",
    **dict.fromkeys(("chain", "s", "si", "signature", "then"), _CHAIN),
    "retry": "raise `RetryAfter(timedelta(minutes=2))` in a junction, to fail and be retried",
    "schedule": "schedule it with `app.schedule({0}, external_id, value, every(minutes=5))`",
}
"""What to use instead of what tasks of Celery, Dramatiq, RQ, Procrastinate and Taskiq offer."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Train(Generic[In_contra, Out_co]):
    """A named route with one input type, one output type, and options."""

    name: str
    route: Route[In_contra, Out_co]
    options: TrainOptions
    services: Services | None
    extra: tuple[Any, ...]
    plan: Plan
    steps: StepLoop
    """Its compiled form: runs all steps as a run, on the event loop."""

    def __repr__(self) -> str:
        return f"<train {self.name}: {self.route!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of a train of one junction, without a record; a test needs no app."""
        first, *others = self.route.stops
        if others or not callable(first.action):
            raise DefinitionError(
                f"train {self.name!r} has several junctions, so it cannot be called like a function; use "
                f"`await {self.name}.run(value)`, or with a record `await app.run({self.name}, value)`"
            )
        return first.action(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker reports any attribute that does not exist

        def __getattr__(self, name: str) -> Any:
            """Name the verb for what other libraries offer on their tasks, such as `delay`."""
            verb = FOREIGN_VERBS.get(name)
            hint = f"; {verb.format(self.name)}" if verb else did_you_mean(name, dir(type(self)))
            raise AttributeError(f"a train has no attribute {name!r}{hint}", name=name, obj=self)

        def __rshift__(self, other: Any) -> Any:
            raise DefinitionError(
                f"{self!r} cannot be part of a route: decorate its function with @junction instead, and join "
                "junctions: app.train(name, first >> second); `then_include` runs a train after another one"
            )

        __rrshift__ = __rshift__

    @property
    def input_type(self) -> Any:
        return self.plan.input_type

    @property
    def output_type(self) -> Any:
        return self.plan.output_type

    @property
    def is_sync(self) -> bool:
        """Whether every junction is synchronous, so that the train can run without an event loop."""
        return self.plan.first_async is None

    async def run(
        self,
        value: In_contra,
        /,
        on_junction: Observer | None = None,
        **keywords: Unpack[TrainRunKeywords],
    ) -> Out_co:
        """Run the train in this process and return its output. Errors of junctions are raised unchanged."""
        return result_of(await self.attempt(value, on_junction, **keywords))

    async def attempt(
        self,
        value: In_contra,
        /,
        on_junction: Observer | None = None,
        **keywords: Unpack[TrainRunKeywords],
    ) -> Outcome[Out_co]:
        """Run the train in this process and return its outcome. Raises only if the task is cancelled."""
        run = TrainRun(**keywords)
        return run.outcome(await self.execute(run, value, on_junction))

    def execute(self, run: TrainRun, value: Any, observe: Observer | None) -> Coroutine[Any, Any, Out_co]:
        """Run the train as this run. Returns the output, or sets the run's `failure`.

        A synchronous train runs in one thread, unless it takes services.
        """
        plan = self.plan
        if plan.first_async is None:
            services = run.services or self.services
            if services is None or not services.has_any(plan.parameter_keys):
                return run.execute_in_thread(self.steps, value, observe, self.name)
        return self.steps(run, value, observe)

    def run_blocking(self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]) -> Out_co:
        """Run the train in the calling thread; every junction must be synchronous."""
        return result_of(self.attempt_blocking(value, **keywords))

    def attempt_blocking(self, value: In_contra, /, **keywords: Unpack[TrainRunKeywords]) -> Outcome[Out_co]:
        """Run the train in the calling thread and return its outcome."""
        if self.plan.first_async is not None:
            raise DefinitionError(
                f"train {self.name!r} cannot run blocking: its junction {self.plan.first_async!r} is async"
            )
        run = TrainRun(**keywords)
        return run.outcome(run.execute_here(self.steps, value))


def require_train(value: Any) -> None:
    if not isinstance(value, Train):
        raise InvalidArgument("train", "a train, defined with @app.train or app.train(name, route)", value)


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
    whole: Route[Any, Any] = Route(stops_of(segment))
    types = {
        "input_type": input_of(whole) if input is MISSING else input,
        "output_type": output_of(whole) if output is MISSING else output,
    }
    check_elements(types["input_type"], f"train {name!r}: its input")
    _raise_problems(check_route(name, whole, services=services, extra=extra, **types))
    options = build_options(name, keywords)
    plan = build_plan(name, whole, **types)
    return Train(name, whole, options, services, extra, plan, compile_steps(plan, services))


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
    if isinstance(function, Train):
        raise DefinitionError(f"{function!r} is a train already; define another one from its junctions")
    if isinstance(function, str):
        raise DefinitionError(
            f"train {function!r} has a name, but no route; write app.train({function!r}, junction >> …), or "
            "@app.train above a function, whose name it then has"
        )
    step = junction(function)
    return train(name or step.name, step, **keywords)


def _raise_problems(problems: list[RouteError]) -> None:
    """Raise the problems of a route as one RouteError."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        code, first = str(problems[0]).split(": ", 1)
        raise RouteError(code, "\n".join([first, *map(str, problems[1:])]))


class Registry:
    """The trains of an app, found by name or alias.

    Stored names resolve only here, so no row can import code.
    """

    def __init__(self) -> None:
        self._trains: dict[str, Train[Any, Any]] = {}
        self._by_any_name: dict[str, Train[Any, Any]] = {}
        self._places: dict[str, str | None] = {}

    def add(self, train: Train[Any, Any], *, internal: bool = False) -> None:
        """Register a train under its name and aliases: all, or none if one is taken."""
        names, place = (train.name, *train.options.aliases), definition_place()
        for name in names:
            check_name(name)
            if not internal:
                check_not_reserved(name)
            self._refuse_duplicate(name, train, place)
        self._places[train.name] = place
        self._trains[train.name] = train
        self._by_any_name.update(dict.fromkeys(names, train))

    def get(self, name: str) -> Train[Any, Any]:
        train = self._by_any_name.get(name)
        if train is None:
            raise UnknownTrain(name, self._by_any_name)
        return train

    def synonyms(self, names: Iterable[str]) -> frozenset[str]:
        """These names, and all other names and aliases of their trains. Unknown names are kept."""
        trains = [self._by_any_name[name] for name in names if name in self._by_any_name]
        others = (name for train in trains for name in (train.name, *train.options.aliases))
        return frozenset((*names, *others))

    @property
    def names(self) -> list[str]:
        """The names of all trains, without aliases, sorted."""
        return sorted(self._trains)

    @property
    def names_and_aliases(self) -> frozenset[str]:
        """All names and aliases of the trains of this app."""
        return frozenset(self._by_any_name)

    @property
    def cpu_names(self) -> frozenset[str]:
        """All names and aliases of trains that run in a separate process."""
        return frozenset(name for name, train in self._by_any_name.items() if train.options.cpu)

    def __contains__(self, name: str) -> bool:
        return name in self._by_any_name

    def __iter__(self) -> Iterator[Train[Any, Any]]:
        return iter(self._trains.values())

    def __len__(self) -> int:
        return len(self._trains)

    def _refuse_duplicate(self, name: str, train: Train[Any, Any], place: str | None) -> None:
        holder = self._by_any_name.get(name)
        if holder is not None:
            raise DefinitionError(
                f"train name {name!r} is registered twice: by train {holder.name!r} "
                f"({self._places[holder.name] or repr(holder.route)}) and by train {train.name!r} "
                f"({place or repr(train.route)}); rename one of them"
            )
