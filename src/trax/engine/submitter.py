"""The Submitter protocol: what a submitter gets and what it returns; the submitters of an app."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from trax.errors import DefinitionError, did_you_mean, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    from trax.engine.routing import Routing
    from trax.train import Train

LOCAL: Final = "local"
"""Trax's own workers. They claim pending runs from the database, so no hand-over is needed."""
MAX_DOUBLINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run to be executed elsewhere. The receiver claims it by its `metadata_id`.

    `input` is JSON text. The record has it as well, so a message does not have to carry it.
    """

    metadata_id: int
    external_id: str
    train: str
    input: str | None = None
    priority: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that was not accepted, and why."""

    reason: str


SubmissionResult: TypeAlias = Refused | Exception | None
"""The submission result of one run: None when it was accepted."""


@runtime_checkable
class Submitter(Protocol):
    """Hands runs over to their executor: a queue, a cluster, another server.

    `submit` returns once the runs are safely handed over, with a result for each run in the order given, or
    with None when all were accepted. Raising means that none was. A run may be handed over twice, for example
    after a crash; it is executed once nevertheless, since only one receiver can claim its record.

    `submit` may be async or blocking; each blocking call has its own thread. Four more attributes are
    optional: `batch_size`, the maximum number of runs in one call (default: 1); `timeout`, how long a call
    may take (default: the setting `hand_over_timeout`; None: no limit); `lifespan(receiver)`, an async
    context manager around all calls that a server makes, where `receiver` is `app.receiver` of that server;
    and `withdraw(batch)`, a blocking function that is called with runs cancelled after they were handed over.
    """

    @property
    def name(self) -> str: ...

    def submit(
        self, batch: Sequence[Submission], /
    ) -> Awaitable[Sequence[SubmissionResult] | None] | Sequence[SubmissionResult] | None: ...


def check_submitter(submitter: Any) -> None:
    """Validate a submitter when it is registered."""
    if not isinstance(submitter, Submitter) or not callable(submitter.submit):
        raise DefinitionError(
            f"{format_value(submitter)} is not a submitter: it needs a `name` and a function `submit(batch)`"
        )
    if not isinstance(cast("Any", submitter.name), str) or not submitter.name:
        raise DefinitionError(f"the name of a submitter must be text (got {format_value(submitter.name)})")
    size = batch_size_of(submitter)
    if not isinstance(cast("Any", size), int) or size < 1:
        raise DefinitionError(f"submitter {submitter.name!r}: batch_size must be 1 or more (got {size!r})")


def batch_size_of(submitter: Submitter) -> int:
    return getattr(submitter, "batch_size", 1)


def timeout_of(submitter: Submitter, default: timedelta) -> timedelta | None:
    return getattr(submitter, "timeout", default)


def open_submitter(submitter: Submitter, receiver: Any) -> AbstractAsyncContextManager[Any]:
    """The context manager around all calls of a server; it yields an object to drain at the end, or None."""
    lifespan = getattr(submitter, "lifespan", None)
    return nullcontext() if lifespan is None else lifespan(receiver)


def validate_results(submitter: str, returned: Any, batch: Sequence[Submission]) -> list[SubmissionResult]:
    """One result per run. An invalid return value refuses all: it cannot say which runs were accepted."""
    if returned is None:
        return [None] * len(batch)
    if not isinstance(returned, Sequence) or isinstance(returned, str):
        return _refuse_all(submitter, f"returned {format_value(returned)}", batch)
    results = list(cast("Sequence[Any]", returned))
    if len(results) != len(batch):
        return _refuse_all(submitter, f"returned {len(results)} results", batch)
    return [_validate_result(submitter, result) for result in results]


def pause_after(
    failures: int, *, max_attempts: int, interval: timedelta, max_pause: timedelta
) -> timedelta | None:
    """How long to wait after this many failed hand-overs, doubled each time; None: give up."""
    if failures >= max_attempts:
        return None
    return min(interval * 2 ** min(failures, MAX_DOUBLINGS), max_pause)


def _validate_result(submitter: str, result: Any) -> SubmissionResult:
    if result is None or isinstance(result, Refused | Exception):
        return result
    return Refused(
        f"submitter {submitter!r} returned {format_value(result)}; expected None, Refused or an exception"
    )


def _refuse_all(submitter: str, what: str, batch: Sequence[Submission]) -> list[SubmissionResult]:
    refused = Refused(f"submitter {submitter!r} {what} for {len(batch)} runs; expected one result per run")
    return [refused] * len(batch)


class Submitters:
    """The submitters of an app, and the trains routed to them. A train without a route is local."""

    def __init__(self) -> None:
        self._known: dict[str, Submitter] = {}
        self._routes: dict[str, list[str]] = {}
        self._default = LOCAL
        self.changes = 0
        """How often routes have changed."""

    def add(self, submitter: Submitter) -> None:
        """Register a submitter by its name, so that trains can refer to it: `submitter="cluster"`."""
        check_submitter(submitter)
        if submitter.name == LOCAL:
            raise DefinitionError(
                f"the submitter name {LOCAL!r} is reserved for Trax's own workers; choose another name"
            )
        registered = self._known.setdefault(submitter.name, submitter)
        if registered is not submitter:
            raise DefinitionError(
                f"there are two submitters named {submitter.name!r}: {registered!r} and {submitter!r}; "
                "give each a name of its own"
            )

    def route(self, train: str, to: Submitter | str) -> None:
        """Route the runs of a train to this submitter. The app validates routes when it starts."""
        self._routes.setdefault(train, []).append(self._name_of(to))
        self.changes += 1

    @property
    def default(self) -> str:
        """The submitter of trains without a route."""
        return self._default

    @default.setter
    def default(self, to: Submitter | str) -> None:
        self._default = self._name_of(to)
        self.changes += 1

    def __iter__(self) -> Iterator[Submitter]:
        return iter(self._known.values())

    def check(self, trains: Iterable[Train[Any, Any]]) -> None:
        """Refuse a train that is routed to two submitters, and a submitter name that is not registered."""
        self._check_known(self._default, "the default submitter")
        for train in trains:
            names = self._destinations(train)
            if len(names) > 1:
                both = " and ".join(repr(name) for name in names)
                raise DefinitionError(f"train {train.name!r} is routed to {both}; route it to one of them")
            for name in names:
                self._check_known(name, f"train {train.name!r}")

    def build_routing(self, trains: Iterable[Train[Any, Any]]) -> Routing:
        """The routing of these trains, for the dispatcher."""
        from trax.engine.routing import Routing

        each = [(train, (train.name, *train.options.aliases)) for train in trains]
        return Routing(
            submitters={
                name: submitter
                for train, names in each
                for submitter in self._destinations(train)
                for name in names
            },
            exempt=frozenset(
                name for train, names in each if train.options.exclude_from_max_active_jobs for name in names
            ),
            default=self._default,
            known=frozenset(name for _, names in each for name in names),
        )

    def has_local_work(self, trains: Iterable[Train[Any, Any]]) -> bool:
        """Whether any train runs on Trax's own workers."""
        destinations = {name for train in trains for name in self._destinations(train) or [self._default]}
        return LOCAL in (destinations or {self._default})

    def _name_of(self, to: Submitter | str) -> str:
        if isinstance(to, str):
            return to
        self.add(to)
        return to.name

    def _destinations(self, train: Train[Any, Any]) -> list[str]:
        own = [train.options.submitter] if train.options.submitter else []
        return list(dict.fromkeys([*own, *self._routes.get(train.name, [])]))

    def _check_known(self, name: str, subject: str) -> None:
        known = [LOCAL, *self._known]
        if name not in known:
            raise DefinitionError(
                f"{subject}: there is no submitter {name!r}{did_you_mean(name, known)}; "
                f"known: {', '.join(known)}; add it with app.submitters.add(…)"
            )
