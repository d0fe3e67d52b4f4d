"""What code says about manifests and groups: plain values, before any of it is a row."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

from trax.records.states import MisfirePolicy, ScheduleType
from trax.records.when import Exclusion, Schedule
from trax.schedule.requirement import FLAG, ITEM_ID, LABEL, LIMIT, PRIORITY
from trax.train import Retry

In_co = TypeVar("In_co", covariant=True)


class Unset(Enum):
    """The type of UNSET."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return self.value


UNSET: Final = Unset.UNSET
"""Not said, so left as it is; None would say "no limit"."""


@dataclass(frozen=True, slots=True)
class Group:
    """Manifests that share limits. What is not said is left as it is, also what an operator has changed.

    Without a name it speaks of the group that the manifest is in anyway.
    """

    name: str | None = None
    """Its name; None: the group that the manifest is in anyway."""
    max_active_jobs: int | Unset | None = UNSET
    """How many of its runs may be under way at once, on all servers together; None: no limit."""
    priority: int | Unset = UNSET
    """From 0 to 31; groups with a higher one go first."""
    enabled: bool | Unset = UNSET
    """Whether anything of it is let through the gate."""

    def __post_init__(self) -> None:
        if self.name is not None:
            LABEL("a group's name", self.name)
        place = f"group {self.name!r}" if self.name else "a group"
        for name, requirement in (("max_active_jobs", LIMIT), ("priority", PRIORITY), ("enabled", FLAG)):
            value = getattr(self, name)
            if value is not UNSET:
                requirement(f"{place}: {name}", value)


@dataclass(frozen=True, slots=True)
class Item(Generic[In_co]):
    """One of many: its id within the batch, its input, and (a full external id) what it depends on."""

    id: str | int
    """What tells it from the others; the external id is the name of the batch, a dash and this."""
    input: In_co
    """What its train is run with."""
    depends_on: str | None = None
    """The external id of the manifest after whose success it runs."""

    def __post_init__(self) -> None:
        ITEM_ID("an item's id", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Everything a manifest's row needs from code. What is None is left to the app's settings.

    `input` is JSON text that has been checked; `enabled` None leaves an operator's choice alone; `delay` is
    for what runs once; `depends_on` is an external id; `batch` names the batch that owns the manifest;
    `renamed_from` are external ids that it had before.
    """

    external_id: str
    train: str
    input: str
    schedule_type: ScheduleType
    schedule: Schedule | None = None
    delay: timedelta | None = None
    depends_on: str | None = None
    group: str
    batch: str | None = None
    priority: int = 0
    enabled: bool | None = None
    max_retries: int | None = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    misfire_policy: MisfirePolicy | None = None
    misfire_limit: int | None = None
    misfire_threshold: timedelta | None = None
    exclusions: tuple[Exclusion, ...] = ()
    start: Literal["now", "next_occurrence"] | None = None
    max_instances: int = 1
    renamed_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeclaration:
    """Everything code says about a group; what is UNSET is not to be written."""

    name: str
    max_active_jobs: int | Unset | None = UNSET
    priority: int | Unset = UNSET
    enabled: bool | Unset = UNSET

    def overridden_by(self, later: Group) -> GroupDeclaration:
        """The same group after a later word about it: the last word wins, field by field."""
        words = {name: getattr(later, name) for name in _WORDS}
        said = {name: value for name, value in words.items() if value is not UNSET}
        return replace(self, **said) if said else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """All that an app declares, checked: manifests with parents before children, groups as first named."""

    manifests: tuple[Declaration, ...] = ()
    groups: tuple[GroupDeclaration, ...] = ()


_WORDS = tuple(field.name for field in fields(Group) if field.name != "name")
