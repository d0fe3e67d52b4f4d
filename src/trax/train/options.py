"""How a train's runs are handled: retries, limits, priority, hooks. Checked where they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, cast

from trax.bounds import (
    LARGEST_COUNT,
    LARGEST_MULTIPLIER,
    MOST_SLOTS,
    PRIORITY_MAX,
    is_duration,
    is_number,
    is_whole,
)
from trax.errors import InvalidArgument
from trax.train.names import check_name

Hook: TypeAlias = Callable[..., Any]

COUNT = f"a whole number from 0 to {LARGEST_COUNT}"
LIMIT = f"a whole number from 1 to {MOST_SLOTS}"
WAIT = "a timedelta from 0 to 68 years"
HOOKS = ("on_queue", "on_started", "on_completed", "on_failed", "on_cancelled")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed run is tried again, and when: after `delay`, then `multiplier` times as long."""

    max_retries: int = 3
    """How many runs a job gets in all before it is given up as a dead letter."""
    delay: timedelta = timedelta(minutes=5)
    """How long to wait after the first failure."""
    multiplier: float = 2.0
    """How many times as long to wait after each further one."""
    max_delay: timedelta = timedelta(hours=1)
    """The longest wait."""
    jitter: float = 0.0
    """Up to this share of a wait is added by chance, so that what failed together comes back apart."""
    give_up_on: tuple[type[BaseException], ...] = ()
    """Exceptions after which trying again would not help: straight to a dead letter."""

    def __post_init__(self) -> None:
        _require(self, "max_retries", COUNT, is_whole)
        _require(self, "delay", WAIT, is_duration)
        most = LARGEST_MULTIPLIER
        _require(self, "multiplier", f"a number from 1 to {most:g}", lambda value: is_number(value, 1, most))
        _require(self, "max_delay", WAIT, is_duration)
        _require(self, "jitter", "a number from 0 to 1", lambda value: is_number(value, 0, 1))
        _require(self, "give_up_on", "a tuple of exception classes", _are_exceptions)


class TrainKeywords(TypedDict, total=False):
    """The options of a train, as the keyword arguments they are given by."""

    retry: Retry | None
    """How a run that failed is tried again; None: as the settings say."""
    max_retries: int | None
    """The same for the number alone; it has the last word over `retry`."""
    timeout: timedelta | None
    """How long a run may take before it is stopped; None: `default_job_timeout`."""
    priority: int
    """From 0 to 31; the higher one goes first."""
    group: str | None
    """The group whose limit and priority count for its runs."""
    cpu: bool
    """Whether it runs in a process of its own, so that its computing holds up no other run."""
    submitter: str | None
    """Who executes it, by name; None: the app's submitter, or our own workers."""
    aliases: Sequence[str]
    """Names it had before, under which things may still be queued."""
    exclude_from_max_active_jobs: bool
    """Whether its runs take no place under `max_active_jobs`."""
    concurrency_limit: int | None
    """How many `app.run` calls of it one process carries out at once; the others wait."""
    on_queue: Hook | None
    """Called with the record-to-be before an entry is written; what it raises refuses the entry."""
    on_started: Hook | None
    """Called with the record when a run has begun."""
    on_completed: Hook | None
    """Called with the record when it has completed."""
    on_failed: Hook | None
    """Called with the record and the exception when it has failed."""
    on_cancelled: Hook | None
    """Called with the record when it was cancelled, or interrupted and put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of one train; what is None is left to the manifest or to the app's settings."""

    retry: Retry | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    priority: int = 0
    group: str | None = None
    cpu: bool = False
    submitter: str | None = None
    aliases: Sequence[str] = ()
    exclude_from_max_active_jobs: bool = False
    concurrency_limit: int | None = None
    on_queue: Hook | None = None
    on_started: Hook | None = None
    on_completed: Hook | None = None
    on_failed: Hook | None = None
    on_cancelled: Hook | None = None

    def __post_init__(self) -> None:
        _require(self, "retry", "a Retry", _or_none(lambda value: isinstance(value, Retry)))
        _require(self, "max_retries", COUNT, _or_none(is_whole))
        _require(
            self,
            "timeout",
            "a timedelta above 0, up to 68 years",
            _or_none(lambda value: is_duration(value) and bool(value)),
        )
        _require(
            self,
            "priority",
            f"a whole number from 0 to {PRIORITY_MAX}",
            lambda value: is_whole(value, 0, PRIORITY_MAX),
        )
        _require(self, "concurrency_limit", LIMIT, _or_none(is_limit))
        _require(self, "aliases", "a sequence of names", _are_names)
        for name in ("group", "submitter"):
            _require(
                self,
                name,
                "text that is not empty",
                _or_none(lambda value: isinstance(value, str) and value != ""),
            )
        for name in HOOKS:
            _require(self, name, "something that can be called", _or_none(callable))
        object.__setattr__(self, "aliases", tuple(self.aliases))

    def policy(self, default: Retry) -> Retry:
        """How this train is tried again, `max_retries` having the last word over `retry`."""
        chosen = self.retry or default
        return chosen if self.max_retries is None else replace(chosen, max_retries=self.max_retries)


def _require(owner: object, name: str, wanted: str, holds: Callable[[Any], bool]) -> None:
    value = getattr(owner, name)
    if not holds(value):
        raise InvalidArgument(f"{type(owner).__name__}.{name}", wanted, value)


def _or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def is_limit(value: Any) -> bool:
    return is_whole(value, 1, MOST_SLOTS)


def _are_exceptions(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, type) and issubclass(each, BaseException) for each in cast("tuple[Any, ...]", value)
    )


def _are_names(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    for alias in cast("Sequence[Any]", value):
        check_name(alias, "an alias")
    return True
