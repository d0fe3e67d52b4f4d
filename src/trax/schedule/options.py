"""The options of a schedule, as keyword arguments and as a validated value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from trax.errors import DefinitionError, InvalidArgument, did_you_mean
from trax.records.states import MisfirePolicy
from trax.records.when import Exclusion
from trax.schedule.declaration import Group
from trax.schedule.misfire import OnMisfire, policy_and_limit
from trax.schedule.requirement import (
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    PRIORITY,
    RETRY,
    TIME_LIMIT,
    WHOLE_SECONDS,
    Requirement,
)
from trax.train import Retry

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
    max_retries: int | None
    """How many runs may fail before a dead letter is created; overrides `retry`."""
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
    max_retries: int | None = None
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
    options = {name: value for name, value in keywords.items() if value is not None}
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
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (_EXCLUSION(name, value),)
    return tuple(_EXCLUSION(name, each) for each in cast("Iterable[Any]", value))


def _external_ids(name: str, value: Any) -> tuple[str, ...]:
    ids = (
        (value,)
        if isinstance(value, str) or not isinstance(value, Iterable)
        else cast("Iterable[Any]", value)
    )
    return tuple(_EXTERNAL_ID(name, each) for each in ids)


_GROUP = Requirement("a group's name or a Group", lambda value: isinstance(value, Group))
_EXCLUSION = Requirement(
    "an exclusion such as exclude.dates(…), or a list of them", lambda value: isinstance(value, Exclusion)
)
_EXTERNAL_ID = Requirement(
    "an external id or a list of external ids", lambda value: isinstance(value, str) and bool(value)
)
_START = Requirement('"now" or "next_occurrence"', lambda value: value in ("now", "next_occurrence"))
_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "group": _group,
    "priority": PRIORITY,
    "enabled": FLAG,
    "max_retries": COUNT,
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
