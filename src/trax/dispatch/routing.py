"""Which submitter executes a train, and whether its runs count against the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from trax.dispatch.submit import Submitter, check_submitter
from trax.errors import DefinitionError, did_you_mean

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
