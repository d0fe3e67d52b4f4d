"""Who could start what: the trains and groups that live workers take, and the trains that servers hand over.

No I/O: give it what the rows of the workers say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trax.errors import did_you_mean
from trax.store.parking import SEPARATOR

if TYPE_CHECKING:
    from trax.dispatch.routing import Routing


class Takes(NamedTuple):
    """What one worker takes: trains by every name they have or had, and groups; None is all of them."""

    trains: frozenset[str]
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What live workers take, and which submitter other servers hand a train to."""

    workers: tuple[Takes, ...] = ()
    routes: Mapping[str, str] = field(default_factory=dict[str, str])
    takes_any: bool = False
    """Whether all that nobody routed is handed to a submitter, known or not."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody could start anything."""
        return not (self.workers or self.routes or self.takes_any)

    @property
    def is_by_group(self) -> bool:
        """Whether it matters which group an entry is in."""
        return any(worker.groups is not None for worker in self.workers)

    @property
    def trains(self) -> frozenset[str]:
        """Every train that somebody could start."""
        return frozenset(self.routes).union(*(worker.trains for worker in self.workers))

    def joined_by(self, other: Fleet) -> Fleet:
        return Fleet(
            workers=(*self.workers, *other.workers),
            routes={**other.routes, **self.routes},
            takes_any=self.takes_any or other.takes_any,
        )

    def can_start(self, train: str, group: str | None) -> bool:
        if self.takes_any or train in self.routes:
            return True
        return any(
            train in worker.trains and (worker.groups is None or group in worker.groups)
            for worker in self.workers
        )

    def key(self, train: str, group: str | None) -> str:
        """What an entry that nobody could start waits for: a train, or a train in a group (or in none)."""
        is_known = any(train in worker.trains for worker in self.workers)
        return f"{train}{SEPARATOR}{group or ''}" if is_known else train

    def has_come(self, key: str) -> bool:
        """Whether what such a key waits for is there by now."""
        train, separator, group = key.partition(SEPARATOR)
        if separator:
            return self.can_start(train, group or None)
        return self.takes_any or train in self.trains

    def why_not(self, key: str) -> str:
        """Why nobody starts what waits for this, with the nearest name that somebody takes."""
        train, separator, group = key.partition(SEPARATOR)
        if separator:
            what = f"in group {group!r}" if group else "outside its own groups"
            return f"no live worker takes train {train!r} {what}"
        return f"no live worker takes train {train!r}{did_you_mean(train, self.trains)}"


def with_routes(routing: Routing, fleet: Fleet) -> Routing:
    """The routing of a server, with the routes of others for the trains that its own code does not know."""
    elsewhere = {train: to for train, to in fleet.routes.items() if train not in routing.known}
    return routing.extended(elsewhere) if elsewhere else routing
