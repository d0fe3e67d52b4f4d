"""The options of a schedule: as keyword arguments, and as the value they make once they are checked."""

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

UNSAID: Final = Group()


class ScheduleKeywords(TypedDict, total=False):
    """How a manifest is handled. What is left out, or None, is left to its train and the app's settings.

    `variance` and `start` are for what has a schedule, `dormant` for what depends on another manifest.
    """

    group: str | Group | None
    """Its group, by name or with limits; else the train's, else the batch's, else one of its own."""
    priority: int | None
    """From 0 to 31, within its group; else the train's."""
    enabled: bool | None
    """Whether it fires. Left out, an operator's choice stays."""
    max_retries: int | None
    """How many runs it gets before it is given up; the last word over `retry`."""
    retry: Retry | None
    """How a run that failed is tried again."""
    timeout: timedelta | None
    """How long a run may take before it is stopped."""
    on_misfire: OnMisfire | None
    """What happens to what was missed: `fire_once_now`, `do_nothing` or `fire_all(limit)`."""
    misfire_threshold: timedelta | None
    """How late is not yet missed, in whole seconds."""
    exclude: Exclusion | Iterable[Exclusion] | None
    """When it must not run: one exclusion or several."""
    variance: timedelta | None
    """Each start is put off by chance, by up to this much."""
    dormant: bool | None
    """Whether it only runs when the run it depends on wakes it with `run.activate`."""
    max_instances: int | None
    """How many of its runs may be under way at once; 1 unless said otherwise."""
    start: Start | None
    """When its first run is: `now`, or at its `next_occurrence`. Else an interval runs now, cron does not."""
    renamed_from: str | Iterable[str] | None
    """The external id it had before, or several: its history comes along."""


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
    start: Start | None = None
    renamed_from: tuple[str, ...] = ()


def options_of(place: str, keywords: Mapping[str, Any]) -> ScheduleOptions:
    """Check what was said at a place, which every message names."""
    said = {name: value for name, value in keywords.items() if value is not None}
    try:
        return ScheduleOptions(**{name: _read(name, value) for name, value in said.items()})
    except InvalidArgument as refused:
        raise InvalidArgument(f"{place}: {refused.place}", refused.wanted, refused.value) from None
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


def _external_ids(name: str, value: Any) -> tuple[str, ...]:
    ids = (
        (value,)
        if isinstance(value, str) or not isinstance(value, Iterable)
        else cast("Iterable[Any]", value)
    )
    return tuple(_EXTERNAL_ID(name, each) for each in ids)


_GROUP = Requirement("a group's name or a Group", lambda value: isinstance(value, Group))
_EXCLUSION = Requirement(
    "made by exclude, such as exclude.dates(…), or a list of such", lambda value: isinstance(value, Exclusion)
)
_EXTERNAL_ID = Requirement(
    "an external id or a list of such", lambda value: isinstance(value, str) and bool(value)
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
