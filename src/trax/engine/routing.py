"""Which submitter executes a train, whether its runs count against the limits, and what workers accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.engine.submitter import Submitter, check_submitter
from trax.errors import DefinitionError, did_you_mean
from trax.records.work_queue_entry import PARKING_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trax.train import Train


LOCAL: Final = "local"
"""Trax's own workers. They claim pending runs from the database, so no hand-over is needed."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of trains, by name: an entry may be for a train that only another server has."""

    submitters: Mapping[str, str] = field(default_factory=dict[str, str])
    exempt: frozenset[str] = frozenset()
    default: str = LOCAL
    known: frozenset[str] = frozenset()
    """The names and aliases of all trains in this server's code."""

    @property
    def is_local(self) -> bool:
        """Whether all trains run on Trax's own workers."""
        return self.default == LOCAL and all(name == LOCAL for name in self.submitters.values())

    @property
    def routes(self) -> dict[str, str]:
        """The trains of this server's code that do not run on Trax's own workers, with their submitters."""
        submitters = {train: self.submitter_of(train) for train in self.known}
        return {train: to for train, to in submitters.items() if to != LOCAL}

    def extend(self, submitters: Mapping[str, str]) -> Routing:
        """A copy with more routes; existing routes win."""
        return replace(self, submitters={**submitters, **self.submitters})

    def submitter_of(self, train: str) -> str:
        return self.submitters.get(train, self.default)


class Submitters:
    """The submitters of an app, and the trains routed to them. A train without a route is local."""

    def __init__(self) -> None:
        self._known: dict[str, Submitter] = {}
        self._routes: dict[str, list[str]] = {}
        self._default = LOCAL

    def add(self, submitter: Submitter) -> None:
        """Register a submitter by its name, so that trains can refer to it: `submitter="cluster"`."""
        check_submitter(submitter)
        if submitter.name == LOCAL:
            raise DefinitionError(f"the name {LOCAL!r} means our own workers; choose another name")
        registered = self._known.setdefault(submitter.name, submitter)
        if registered is not submitter:
            raise DefinitionError(
                f"there are two submitters named {submitter.name!r}: {registered!r} and {submitter!r}; "
                "give each a name of its own"
            )

    def route(self, train: str, to: Submitter | str) -> None:
        """Route the runs of a train to this submitter. The app validates routes when it starts."""
        self._routes.setdefault(train, []).append(self._name_of(to))

    @property
    def default(self) -> str:
        """The submitter of trains without a route."""
        return self._default

    @default.setter
    def default(self, to: Submitter | str) -> None:
        self._default = self._name_of(to)

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
                f"known are {', '.join(known)}; add it with app.submitters.add(…)"
            )


class AcceptedWork(NamedTuple):
    """The trains (with aliases) and the groups that one worker accepts; None: all groups."""

    trains: frozenset[str]
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFleet:
    """What all live workers accept, and the submitter of each train that other servers route."""

    workers: tuple[AcceptedWork, ...] = ()
    routes: Mapping[str, str] = field(default_factory=dict[str, str])
    accepts_any: bool = False
    """Whether the default submitter is not local: then every train without a route can start."""

    @property
    def is_empty(self) -> bool:
        """Whether no train can start anywhere."""
        return not (self.workers or self.routes or self.accepts_any)

    @property
    def is_by_group(self) -> bool:
        """Whether some worker accepts only some groups."""
        return any(worker.groups is not None for worker in self.workers)

    @property
    def trains(self) -> frozenset[str]:
        """Every train that a worker or a submitter can start."""
        return frozenset(self.routes).union(*(worker.trains for worker in self.workers))

    def merge(self, other: WorkerFleet) -> WorkerFleet:
        return WorkerFleet(
            workers=(*self.workers, *other.workers),
            routes={**other.routes, **self.routes},
            accepts_any=self.accepts_any or other.accepts_any,
        )

    def can_start(self, train: str, group: str | None) -> bool:
        if self.accepts_any or train in self.routes:
            return True
        return any(
            train in worker.trains and (worker.groups is None or group in worker.groups)
            for worker in self.workers
        )

    def parking_key(self, train: str, group: str | None) -> str:
        """The key of a parked entry: its train, or its train and group if a worker accepts the train."""
        is_known = any(train in worker.trains for worker in self.workers)
        return f"{train}{PARKING_SEPARATOR}{group or ''}" if is_known else train

    def is_available(self, key: str) -> bool:
        """Whether a worker or submitter for this parking key exists now."""
        train, separator, group = key.partition(PARKING_SEPARATOR)
        if separator:
            return self.can_start(train, group or None)
        return self.accepts_any or train in self.trains

    def describe_missing(self, key: str) -> str:
        """Say what is missing for this parking key, with the most similar known train."""
        train, separator, group = key.partition(PARKING_SEPARATOR)
        if separator:
            what = f"in group {group!r}" if group else "outside its own groups"
            return f"no live worker accepts train {train!r} {what}"
        return f"no live worker accepts train {train!r}{did_you_mean(train, self.trains)}"


def add_fleet_routes(routing: Routing, fleet: WorkerFleet) -> Routing:
    """Add the routes of other servers for trains that this server's code does not have."""
    elsewhere = {train: to for train, to in fleet.routes.items() if train not in routing.known}
    return routing.extend(elsewhere) if elsewhere else routing
