"""The options of a schedule: as keyword arguments, and as the value they make once they are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from trax.errors import DefinitionError, did_you_mean
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

UNSAID: Final = Group()


class ScheduleKeywords(TypedDict, total=False):
    """How a manifest is handled. What is left out, or None, is left to its train and the app's settings.

    `variance` and `start` are for what has a schedule, `dormant` for what depends on another manifest.
    """

    group: str | Group | None
    priority: int | None
    enabled: bool | None
    max_retries: int | None
    retry: Retry | None
    timeout: timedelta | None
    on_misfire: OnMisfire | None
    misfire_threshold: timedelta | None
    exclude: Exclusion | Iterable[Exclusion] | None
    variance: timedelta | None
    dormant: bool | None
    max_instances: int | None
    start: Start | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The options of one manifest or one batch, each of them checked."""

    group: Group = UNSAID
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
    start: Start = "now"


def options_of(place: str, keywords: Mapping[str, Any]) -> ScheduleOptions:
    """Check what was said at a place, which every message names."""
    said = {name: value for name, value in keywords.items() if value is not None}
    try:
        return ScheduleOptions(**{name: _read(name, value) for name, value in said.items()})
    except DefinitionError as refused:
        raise DefinitionError(f"{place}: {refused}") from None


def _read(name: str, value: Any) -> Any:
    if name not in _READERS:
        raise DefinitionError(f"there is no option {name!r}{did_you_mean(name, _READERS)}")
    return _READERS[name](name, value)


def _group(name: str, value: Any) -> Group:
    return Group(value) if isinstance(value, str) else _GROUP(name, value)


def _exclusions(name: str, value: Any) -> tuple[Exclusion, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (_EXCLUSION(name, value),)
    return tuple(_EXCLUSION(name, each) for each in cast("Iterable[Any]", value))


_GROUP = Requirement("a group's name or a Group", lambda value: isinstance(value, Group))
_EXCLUSION = Requirement(
    "made by exclude, such as exclude.dates(…), or a list of such", lambda value: isinstance(value, Exclusion)
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
}
