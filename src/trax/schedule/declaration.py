"""What code declares, as values: manifests, groups, batch items, options, and what starts a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar, cast

from trax.bounds import LONGEST_SECONDS, is_integer
from trax.errors import DefinitionError, InvalidArgument, did_you_mean, format_value
from trax.records.schedule import Cron, Exclusion, Interval, Schedule, is_storable_exclusion
from trax.records.states import MisfirePolicy, ScheduleType
from trax.schedule.cron import parse_expression
from trax.schedule.misfire import OnMisfire, policy_and_limit
from trax.schedule.validate import (
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    ITEM_ID,
    LABEL,
    LIMIT,
    PRIORITY,
    RETRY,
    TIME_LIMIT,
    WHOLE_SECONDS,
    Requirement,
)
from trax.schedule.zones import zone_named
from trax.train import Retry
from trax.train.options import is_name, unify_attempts

When: TypeAlias = Schedule | Literal["on_demand", "none"]
"""The `when` argument of `schedule`; `on_demand` runs only when triggered."""


@dataclass(frozen=True, slots=True)
class Once:
    """Run once, `delay` after the app starts."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class AfterManifest:
    """Run after each success of another manifest; a dormant one only when a run of it activates it."""

    parent: str


Occasion: TypeAlias = Interval | Cron | Once | AfterManifest | ScheduleType


def parse_when(place: str, when: Any) -> Occasion:
    """Validate a `when` argument. A plain string gets a hint to use cron(…)."""
    if isinstance(when, Interval | Cron):
        return _validate_schedule(place, when)
    if when in (ScheduleType.NONE, ScheduleType.ON_DEMAND):
        return ScheduleType(when)
    hint = f"; did you mean cron({format_value(when)})?" if isinstance(when, str) else ""
    if isinstance(when, timedelta):
        hint = f"; did you mean every(seconds={when.total_seconds():g})?"
    raise DefinitionError(
        f'{place} needs every(…), cron("…") or "on_demand" (got {format_value(when)}){hint}'
    )


def schedule_type_of(occasion: Occasion) -> ScheduleType:
    match occasion:
        case Interval():
            return ScheduleType.INTERVAL
        case Cron():
            return ScheduleType.CRON
        case Once():
            return ScheduleType.ONCE
        case AfterManifest():
            return ScheduleType.DEPENDENT
        case ScheduleType():
            return occasion


def _validate_schedule(place: str, schedule: Schedule) -> Schedule:
    """Validate a schedule: one that was not built by `every` or `cron` has not been validated yet."""
    if isinstance(schedule, Cron):
        parse_expression(_EXPRESSION(f"{place}: expression", schedule.expression))
        zone_named(schedule.time_zone)
    elif not is_integer(schedule.seconds, 1, LONGEST_SECONDS):
        raise DefinitionError(f"{place} needs an interval of 1 second or more (got {format_value(schedule)})")
    variance = schedule.variance_seconds
    if variance is not None and not is_integer(variance, 0, LONGEST_SECONDS):
        raise DefinitionError(f"{place} needs a variance of 0 seconds or more (got {format_value(schedule)})")
    return schedule


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
    max_attempts: int | None = None
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


Start: TypeAlias = Literal["now", "next_occurrence"]

EMPTY_GROUP: Final = Group()


class ScheduleKeywords(TypedDict, total=False):
    """Options of a manifest. For an omitted option or None, its train and the app's settings apply.

    `variance` and `start` need an `every` or `cron` schedule, `dormant` needs a parent manifest.
    """

    group: str | Group | None
    """Group name, or a `Group` with limits; default: the train's, else the batch's, else one of its own."""
    priority: int | None
    """0 to 31, within its group; default: the train's."""
    enabled: bool | None
    """Whether it runs. If omitted, the operator's choice is kept."""
    max_attempts: int | None
    """How many runs may fail before a dead letter is created; overrides `retry`."""
    max_retries: int | None
    """Another name of `max_attempts`."""
    retry: Retry | None
    """How a failed run is retried."""
    timeout: timedelta | None
    """Maximum duration of a run; then it is cancelled."""
    on_misfire: OnMisfire | None
    """What to do with missed occurrences: `fire_once_now`, `do_nothing` or `fire_all(limit)`."""
    misfire_threshold: timedelta | None
    """How late an occurrence may start before it counts as missed, in whole seconds."""
    exclude: Exclusion | Iterable[Exclusion] | None
    """When it must not run: one or more exclusions."""
    variance: timedelta | None
    """Each start is delayed by a random time up to this."""
    dormant: bool | None
    """Whether it runs only when a run of its parent activates it with `run.activate`."""
    max_instances: int | None
    """Maximum number of its runs that are active at once; default 1."""
    start: Start | None
    """First run: `now` or at the `next_occurrence`. Default: `now` for every, `next_occurrence` for cron."""
    renamed_from: str | Iterable[str] | None
    """Its former external id, or several; its history is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The validated options of one manifest or one batch."""

    group: Group = EMPTY_GROUP
    priority: int | None = None
    enabled: bool | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    timeout: timedelta | None = None
    on_misfire: tuple[MisfirePolicy | None, int | None] = (None, None)
    misfire_threshold: timedelta | None = None
    exclude: tuple[Exclusion, ...] = ()
    variance: timedelta | None = None
    dormant: bool = False
    max_instances: int = 1
    start: Start | None = None
    renamed_from: tuple[str, ...] = ()


def options_of(place: str, keywords: Mapping[str, Any]) -> ScheduleOptions:
    """Validate options. `place`, such as "manifest 'x'", starts every error message."""
    options = {name: value for name, value in unify_attempts(keywords, place).items() if value is not None}
    try:
        return ScheduleOptions(**{name: _parse_option(name, value) for name, value in options.items()})
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error.argument}", error.expected, error.value) from None
    except DefinitionError as error:
        raise DefinitionError(f"{place}: {error}") from None


def _parse_option(name: str, value: Any) -> Any:
    if name not in _READERS:
        raise DefinitionError(f"unknown option {name!r}{did_you_mean(name, _READERS)}")
    return _READERS[name](name, value)


def _group(name: str, value: Any) -> Group:
    return Group(value) if isinstance(value, str) else _GROUP(name, value)


def _exclusions(name: str, value: Any) -> tuple[Exclusion, ...]:
    """Validate exclusions: those that were not built by `exclude` have not been validated yet."""
    return tuple(_EXCLUSION(name, each) for each in _one_or_several(value))


def _external_ids(name: str, value: Any) -> tuple[str, ...]:
    return tuple(_EXTERNAL_ID(name, each) for each in _one_or_several(value))


def _one_or_several(value: Any) -> Iterable[Any]:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return cast("Iterable[Any]", value)
    return (value,)


_GROUP = Requirement("a group's name or a Group", lambda value: isinstance(value, Group))
_EXCLUSION = Requirement("an exclusion such as exclude.dates(…), or a list of them", is_storable_exclusion)
_EXPRESSION = Requirement("text", lambda value: isinstance(value, str))
_EXTERNAL_ID = Requirement("an external id or a list of external ids", is_name)
_START = Requirement('"now" or "next_occurrence"', lambda value: value in ("now", "next_occurrence"))
_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "group": _group,
    "priority": PRIORITY,
    "enabled": FLAG,
    "max_attempts": COUNT,
    "retry": RETRY,
    "timeout": TIME_LIMIT,
    "on_misfire": lambda _, value: policy_and_limit(value),
    "misfire_threshold": WHOLE_SECONDS,
    "exclude": _exclusions,
    "variance": WHOLE_SECONDS,
    "dormant": FLAG,
    "max_instances": AT_LEAST_ONE,
    "start": _START,
    "renamed_from": _external_ids,
}
