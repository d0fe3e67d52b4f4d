"""Which trains and groups live workers accept, and which trains servers hand over to submitters. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trax.errors import did_you_mean
from trax.store.parking import SEPARATOR

if TYPE_CHECKING:
    from trax.dispatch.routing import Routing


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
        return f"{train}{SEPARATOR}{group or ''}" if is_known else train

    def is_available(self, key: str) -> bool:
        """Whether a worker or submitter for this parking key exists now."""
        train, separator, group = key.partition(SEPARATOR)
        if separator:
            return self.can_start(train, group or None)
        return self.accepts_any or train in self.trains

    def describe_missing(self, key: str) -> str:
        """Say what is missing for this parking key, with the most similar known train."""
        train, separator, group = key.partition(SEPARATOR)
        if separator:
            what = f"in group {group!r}" if group else "outside its own groups"
            return f"no live worker accepts train {train!r} {what}"
        return f"no live worker accepts train {train!r}{did_you_mean(train, self.trains)}"


def add_fleet_routes(routing: Routing, fleet: WorkerFleet) -> Routing:
    """Add the routes of other servers for trains that this server's code does not have."""
    elsewhere = {train: to for train, to in fleet.routes.items() if train not in routing.known}
    return routing.extend(elsewhere) if elsewhere else routing
