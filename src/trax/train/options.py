"""The options of a train, validated: retries, limits, priority, hooks; and the names of trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, cast

from trax.bounds import (
    LARGEST_COUNT,
    LARGEST_MULTIPLIER,
    LONGEST_NAME,
    MAX_SLOTS,
    PRIORITY_MAX,
    is_duration,
    is_integer,
    is_number,
)
from trax.errors import DefinitionError, InvalidArgument, did_you_mean, format_value
from trax.records.metadata import ADMINISTRATIVE_PREFIX

Hook: TypeAlias = Callable[..., Any]

COUNT = f"a whole number from 0 to {LARGEST_COUNT}"

LIMIT = f"a whole number from 1 to {MAX_SLOTS}"

WAIT = "a timedelta from 0 to 68 years"

DEFAULT_ATTEMPTS = 3

HOOKS = ("on_queue", "on_started", "on_completed", "on_failed", "on_cancelled")


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """How often a failed run is retried, and when: after `delay`, then `multiplier` times as long.

    `max_retries` is another name of `max_attempts`.
    """

    max_attempts: int = DEFAULT_ATTEMPTS
    """Maximum number of runs of a job in all; then it becomes a dead letter."""
    delay: timedelta = timedelta(minutes=5)
    """Delay after the first failure."""
    multiplier: float = 2.0
    """Factor by which the delay grows after each further failure."""
    max_delay: timedelta = timedelta(hours=1)
    """Maximum delay."""
    jitter: float = 0.0
    """Random extra delay, up to this fraction of the delay, so that runs that failed together are spread."""
    give_up_on: tuple[type[BaseException], ...] = ()
    """Exceptions that are not retried: the job becomes a dead letter at once."""

    def __init__(
        self,
        max_attempts: int = DEFAULT_ATTEMPTS,
        delay: timedelta = timedelta(minutes=5),
        multiplier: float = 2.0,
        max_delay: timedelta = timedelta(hours=1),
        jitter: float = 0.0,
        give_up_on: tuple[type[BaseException], ...] = (),
        *,
        max_retries: int | None = None,
    ) -> None:
        given = {} if max_attempts == DEFAULT_ATTEMPTS else {"max_attempts": max_attempts}
        attempts = unify_attempts({**given, "max_retries": max_retries}).get("max_attempts")
        values = {
            "max_attempts": max_attempts if attempts is None else attempts,
            "delay": delay,
            "multiplier": multiplier,
            "max_delay": max_delay,
            "jitter": jitter,
            "give_up_on": give_up_on,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    @property
    def max_retries(self) -> int:
        """Another name of `max_attempts`."""
        return self.max_attempts

    def _check(self) -> None:
        _require(self, "max_attempts", COUNT, is_integer)
        _require(self, "delay", WAIT, is_duration)
        most = LARGEST_MULTIPLIER
        _require(self, "multiplier", f"a number from 1 to {most:g}", lambda value: is_number(value, 1, most))
        _require(self, "max_delay", WAIT, is_duration)
        _require(self, "jitter", "a number from 0 to 1", lambda value: is_number(value, 0, 1))
        _require(self, "give_up_on", "a tuple of exception classes", _are_exceptions)


class TrainKeywords(TypedDict, total=False):
    """The options of a train as keyword arguments."""

    retry: Retry | None
    """How a failed run is retried; None: as in the settings."""
    max_attempts: int | None
    """The maximum number of runs alone; overrides `retry`."""
    max_retries: int | None
    """Another name of `max_attempts`."""
    timeout: timedelta | None
    """Maximum duration of a run, then it is cancelled; None: `default_job_timeout`."""
    priority: int
    """0 to 31; a higher priority goes first."""
    group: str | None
    """The group whose limit and priority apply to its runs."""
    cpu: bool
    """Whether it runs in a separate process, so that heavy computation does not block other runs."""
    submitter: str | None
    """Name of the submitter that executes it; None: the app's submitter, or Trax workers."""
    aliases: Sequence[str]
    """Former names, under which entries may still be queued."""
    exclude_from_max_active_jobs: bool
    """Whether its runs do not count towards `max_active_jobs`."""
    save_outputs: bool
    """Whether records keep its outputs; False: never, whatever the setting `save_outputs`."""
    concurrency_limit: int | None
    """Maximum number of concurrent `app.run` calls of it in one process; others wait."""
    on_queue: Hook | None
    """Called with the future record before an entry is written; an exception refuses the entry."""
    on_started: Hook | None
    """Called with the record when a run has started."""
    on_completed: Hook | None
    """Called with the record when a run has completed."""
    on_failed: Hook | None
    """Called with the record and the exception when a run has failed."""
    on_cancelled: Hook | None
    """Called with the record when a run was cancelled, or interrupted and requeued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The validated options of one train; for None the manifest or the app's settings apply."""

    retry: Retry | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    priority: int = 0
    group: str | None = None
    cpu: bool = False
    submitter: str | None = None
    aliases: Sequence[str] = ()
    exclude_from_max_active_jobs: bool = False
    save_outputs: bool = True
    concurrency_limit: int | None = None
    on_queue: Hook | None = None
    on_started: Hook | None = None
    on_completed: Hook | None = None
    on_failed: Hook | None = None
    on_cancelled: Hook | None = None

    def __post_init__(self) -> None:
        _require(self, "retry", "a Retry", _or_none(lambda value: isinstance(value, Retry)))
        _require(self, "max_attempts", COUNT, _or_none(is_integer))
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
            lambda value: is_integer(value, 0, PRIORITY_MAX),
        )
        _require(self, "concurrency_limit", LIMIT, _or_none(is_limit))
        _require(self, "aliases", "a sequence of names", _are_names)
        _require(self, "save_outputs", "True or False", lambda value: isinstance(value, bool))
        for name in ("group", "submitter"):
            _require(
                self,
                name,
                "non-empty text",
                _or_none(lambda value: isinstance(value, str) and value != ""),
            )
        for name in HOOKS:
            _require(self, name, "callable", _or_none(callable))
        object.__setattr__(self, "aliases", tuple(self.aliases))

    def retry_policy(self, default: Retry) -> Retry:
        """The retry policy of this train; `max_attempts` overrides `retry`."""
        chosen = self.retry or default
        return chosen if self.max_attempts is None else replace(chosen, max_attempts=self.max_attempts)


def build_options(train: str, keywords: Mapping[str, Any]) -> TrainOptions:
    """The options of the train with this name, which starts every error message."""
    keywords = unify_attempts(keywords, f"train {train!r}")
    known = TrainOptions.__dataclass_fields__
    unknown = next((name for name in keywords if name not in known), None)
    if unknown is not None:
        raise DefinitionError(f"train {train!r}: unknown option {unknown!r}{did_you_mean(unknown, known)}")
    try:
        return TrainOptions(**keywords)
    except InvalidArgument as error:
        raise InvalidArgument(f"train {train!r}: {error.argument}", error.expected, error.value) from None
    except DefinitionError as error:
        raise DefinitionError(f"train {train!r}: {error}") from None


def unify_attempts(keywords: Mapping[str, Any], place: str = "Retry") -> dict[str, Any]:
    """The same options with `max_attempts` for `max_retries`, its other name."""
    options = dict(keywords)
    other = options.pop("max_retries", None)
    if other is None:
        return options
    if options.get("max_attempts") not in (None, other):
        raise DefinitionError(
            f"{place}: max_retries is another name of max_attempts; give one of them "
            f"(got max_attempts={format_value(options['max_attempts'])}, max_retries={format_value(other)})"
        )
    return {**options, "max_attempts": other}


def _require(owner: object, name: str, expected: str, is_valid: Callable[[Any], bool]) -> None:
    value = getattr(owner, name)
    if not is_valid(value):
        place = "" if isinstance(owner, TrainOptions) else f"{type(owner).__name__}."
        raise InvalidArgument(f"{place}{name}", expected, value)


def _or_none(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_valid(value)


def is_limit(value: Any) -> bool:
    return is_integer(value, 1, MAX_SLOTS)


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


def is_name(value: Any) -> bool:
    """Whether this could be the name of a train, a batch or an app, or an external id."""
    try:
        check_name(value)
    except DefinitionError:
        return False
    return True


def check_name(name: Any, what: str = "a train's name") -> None:
    if not isinstance(name, str) or not name:
        raise DefinitionError(f"{what} must be non-empty text (got {format_value(name)})")
    if len(name) > LONGEST_NAME:
        raise DefinitionError(
            f"{what} must have at most {LONGEST_NAME} characters (got {len(name)}: {format_value(name)})"
        )
    if any(character.isspace() or not character.isprintable() for character in name):
        raise DefinitionError(
            f"{what} must not contain spaces or control characters (got {format_value(name)})"
        )


def check_not_reserved(name: str) -> None:
    if name.startswith(ADMINISTRATIVE_PREFIX):
        raise DefinitionError(f"names that start with {ADMINISTRATIVE_PREFIX!r} are reserved (got {name!r})")
