"""The filter of runs that a worker accepts: all registered trains, or some trains and groups."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, cast

from trax.errors import DefinitionError, did_you_mean, format_value
from trax.schedule.validate import LABEL
from trax.store import groups
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from trax.store import Connection
    from trax.train import Registry
    from trax.worker.parts import Parts

logger = logging.getLogger(__name__)


class WorkFilterKeywords(TypedDict, total=False):
    """The trains and groups that a worker accepts; omitted or None means all."""

    trains: Iterable[str] | None
    groups: Iterable[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFilter:
    """Names of trains, including aliases, and of groups. None means all."""

    trains: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @classmethod
    def parse(cls, registry: Registry, keywords: WorkFilterKeywords) -> Self:
        """Build a filter. Raises UnknownTrain for a train that is not registered here."""
        for name in keywords.keys() - WorkFilterKeywords.__annotations__.keys():
            raise DefinitionError(
                f"unknown option {name!r}{did_you_mean(name, WorkFilterKeywords.__annotations__)}"
            )
        trains, groups = keywords.get("trains"), keywords.get("groups")
        names = (
            None if trains is None else [registry.get(name).name for name in _parse_names("trains", trains)]
        )
        return cls(
            trains=None if names is None else registry.synonyms(names),
            groups=None if groups is None else frozenset(_parse_names("groups", groups)),
        )

    @property
    def is_restricted(self) -> bool:
        """Whether the filter excludes any runs."""
        return self.trains is not None or self.groups is not None

    def worker_columns(self, parts: Parts) -> dict[str, Any]:
        """The columns of the worker's row: current train names, aliases and groups."""
        trains = [name for name in parts.trains.names if self.trains is None or name in self.trains]
        groups = None if self.groups is None else json.dumps(sorted(self.groups))
        aliases = sorted(parts.trains.synonyms(trains) - set(trains))
        return {"trains": json.dumps(trains), "aliases": json.dumps(aliases), "groups": groups}

    def claim_request(self, parts: Parts, *, worker_id: int, slots: int, cpu_slots: int) -> ClaimRequest:
        """What the worker offers at a claim."""
        trains, known, cpu = self.trains, parts.trains.names_and_aliases, parts.trains.cpu_names
        return ClaimRequest(
            worker_id=worker_id,
            host=parts.identity.host,
            slots=slots,
            trains=known if trains is None else known & trains,
            cpu_slots=cpu_slots,
            cpu_trains=cpu if trains is None else cpu & trains,
            groups=self.groups,
            has_filter=self.is_restricted,
        )

    def warn_about_missing_groups(self, connection: Connection) -> None:
        """Log groups that do not exist: they may be created later, or be misspelt."""
        wanted = set(self.groups or ())
        missing = sorted(wanted - groups.load_by_names(connection, wanted).keys()) if wanted else []
        if missing:
            text = "this worker accepts runs of group %s, which does not exist yet; check the name"
            logger.warning(text, ", ".join(map(repr, missing)))


ANY_WORK: Final = WorkFilter()


def _parse_names(option: str, value: Any) -> list[str]:
    """Validate a list of names; an empty list is an error."""
    names = (
        list(cast("Iterable[Any]", value))
        if isinstance(value, Iterable) and not isinstance(value, str)
        else []
    )
    if not names or not all(map(LABEL.is_valid, names)):
        raise DefinitionError(f"{option} must be a list of at least one name (got {format_value(value)})")
    return names
