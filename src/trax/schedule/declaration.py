"""Declared manifests and groups as values: Group, Item, Declaration, Timetable."""

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
"""Not given, so unchanged; None would mean "no limit"."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of manifests that share limits. Omitted options stay unchanged, including operator edits.

    Without a name it applies to the group that the manifest has by default.
    """

    name: str | None = None
    """Group name; None: the default group of the manifest."""
    max_active_jobs: int | Unset | None = UNSET
    """Maximum number of active runs, on all servers together; None: no limit."""
    priority: int | Unset = UNSET
    """0 to 31; groups with a higher priority go first."""
    enabled: bool | Unset = UNSET
    """Whether its jobs are admitted to run."""

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
    """One manifest of a batch: its id in the batch, its input, and the external id it depends on."""

    id: str | int
    """Unique in the batch; the external id is `<batch name>-<id>`, or the id alone without a batch name."""
    input: In_co
    """Input of the train."""
    depends_on: str | None = None
    """Full external id of the manifest after whose success it runs."""

    def __post_init__(self) -> None:
        ITEM_ID("an item's id", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A manifest as declared in code. None means that the app's settings apply.

    `input` is validated JSON text; `enabled=None` keeps the operator's choice; `delay` applies to manifests
    that run once; `depends_on` is an external id; `batch` names the batch that owns the manifest;
    `renamed_from` are its former external ids.
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
    """A group as declared in code; UNSET options are not written."""

    name: str
    max_active_jobs: int | Unset | None = UNSET
    priority: int | Unset = UNSET
    enabled: bool | Unset = UNSET

    def merge(self, later: Group) -> GroupDeclaration:
        """Apply the options of a later declaration, which wins field by field."""
        options = {name: getattr(later, name) for name in _GROUP_OPTIONS}
        changes = {name: value for name, value in options.items() if value is not UNSET}
        return replace(self, **changes) if changes else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """All validated declarations of an app: parents before children, groups in order of first mention."""

    manifests: tuple[Declaration, ...] = ()
    groups: tuple[GroupDeclaration, ...] = ()


_GROUP_OPTIONS = tuple(field.name for field in fields(Group) if field.name != "name")
