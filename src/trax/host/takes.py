"""Which runs a worker takes: all that its code knows, or only those of some trains and some groups."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, cast

from trax.errors import DefinitionError, shown
from trax.store import manifest_groups
from trax.store.claim import Taker

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.store import Connection
    from trax.train import Registry

logger = logging.getLogger(__name__)


class Only(TypedDict, total=False):
    """Of which trains and groups a worker takes runs; what is left out, or None, stands for all."""

    trains: Iterable[str] | None
    groups: Iterable[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """Names of trains, with those they had before, and of groups. None: any that there is."""

    trains: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @classmethod
    def checked(cls, registry: Registry, only: Only) -> Self:
        """Refuses a train that this code does not know: the worker would wait for it in vain."""
        trains, groups = only.get("trains"), only.get("groups")
        wanted = None if trains is None else [registry.get(name).name for name in _names("trains", trains)]
        return cls(
            trains=None if wanted is None else registry.synonyms(wanted),
            groups=None if groups is None else frozenset(_names("groups", groups)),
        )

    @property
    def is_picky(self) -> bool:
        """Whether there may be runs that it leaves to others."""
        return self.trains is not None or self.groups is not None

    def columns(self, parts: Parts) -> dict[str, Any]:
        """What the row of such a worker says: its trains by the names they have now, and its groups."""
        trains = [name for name in parts.trains.names if self.trains is None or name in self.trains]
        groups = None if self.groups is None else json.dumps(sorted(self.groups))
        aliases = sorted(parts.trains.synonyms(trains) - set(trains))
        return {"trains": json.dumps(trains), "aliases": json.dumps(aliases), "groups": groups}

    def taker(self, parts: Parts, *, worker_id: int, slots: int, cpu_slots: int) -> Taker:
        """The worker as it comes for runs."""
        trains, known, cpu = self.trains, parts.trains.names_and_aliases, parts.trains.cpu_names
        return Taker(
            worker_id=worker_id,
            host=parts.identity.host,
            slots=slots,
            trains=known if trains is None else known & trains,
            cpu_slots=cpu_slots,
            cpu_trains=cpu if trains is None else cpu & trains,
            groups=self.groups,
            is_picky=self.is_picky,
        )

    def warn_of_absent(self, connection: Connection) -> None:
        """Say which groups nobody has made yet: they may come, or be misspelt."""
        wanted = set(self.groups or ())
        absent = sorted(wanted - manifest_groups.of_names(connection, wanted).keys()) if wanted else []
        if absent:
            text = "this worker takes runs of group %s, and there is no such group yet"
            logger.warning(text, ", ".join(map(repr, absent)))


ANYTHING: Final = Takes()


def _names(what: str, given: Any) -> list[str]:
    """At least one name: a worker that takes nothing is a mistake, not a wish."""
    names = (
        list(cast("Iterable[Any]", given))
        if isinstance(given, Iterable) and not isinstance(given, str)
        else []
    )
    if not names or not all(isinstance(name, str) and name for name in names):
        raise DefinitionError(f"{what} must be a list of names, at least one (got {shown(given)})")
    return names
