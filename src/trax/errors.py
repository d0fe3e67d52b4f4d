"""All errors that Trax raises to callers, as one class tree. In parentheses: what they also derive from.

TraxError
├── DefinitionError          something declared in code is wrong (ValueError)
│   ├── RouteError           a route whose junctions do not fit together (CHAIN001, CHAIN002)
│   ├── UnknownTrain         no train is registered under this name (LookupError)
│   └── InvalidSetting       a setting has an invalid value
│       └── UnknownSetting   there is no setting of this name (LookupError)
├── InvalidInput             an input or output does not match its declared type (ValueError)
│   ├── InvalidArgument      an invalid argument or option (DefinitionError)
│   └── SecretUnreadable     a secret in it cannot be decrypted: it was not stored, or its key is missing
├── WiringError              a value that a junction needs is missing at run time
├── RunCancelled             the run was cancelled: by an operator, a timeout, or itself
│   ├── RunTimedOut          it exceeded its timeout (TimeoutError)
│   └── Cancel               raised in a junction: end this run as cancelled
├── UnexpectedCancellation   the task of a run was cancelled though nobody cancelled the run: a failure
├── RunInterrupted           the run had to stop before its end and should run again
├── DelayRequest             the run should run again after a delay
│   ├── RetryAfter           raised in a junction: fail, and retry after this delay
│   └── Snooze               raised in a junction: run again later, without a failure (RunInterrupted)
├── ProcessDied              the process of a cpu train ended during the run
├── RemoteFailure            an exception that a run raised in another process
├── RemoteLost               the connection to the executor of a run broke (ConnectionError)
├── EndpointUnreachable      an HTTP worker did not start the run (ConnectionError)
├── EntryCancelled           the entry was withdrawn from the work queue before it ran
├── WaitTimedOut             the job did not end within the timeout of the wait (TimeoutError)
├── NotFound                 no such record (LookupError)
├── Conflict                 the record has changed in the meantime
├── MissingExtra             a feature needs packages that are not installed
├── AppImportError           the module of the app cannot be imported by a command
├── PostgresNotFound         no PostgreSQL programs for `trax.testing.postgres` (LookupError)
├── PostgresFailed           a PostgreSQL program of `trax.testing.postgres` failed
└── StoreError               a database error
    ├── InvalidUrl           Trax cannot use this database URL (ValueError)
    ├── StoreUnavailable     unreachable, restarting or busy: a retry may succeed (ConnectionError)
    ├── AccessDenied         the database refuses this user, file or statement
    ├── RowsRefused          the database refuses these values
    ├── SchemaNotMigrated    the tables are missing or older than this code
    └── SchemaTooNew         the tables are newer than this code
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trax.bounds import is_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

__all__ = [
    "AccessDenied",
    "AppImportError",
    "Cancel",
    "Conflict",
    "DefinitionError",
    "DelayRequest",
    "EndpointUnreachable",
    "EntryCancelled",
    "FieldError",
    "InvalidArgument",
    "InvalidInput",
    "InvalidSetting",
    "InvalidUrl",
    "MissingExtra",
    "NotFound",
    "PostgresFailed",
    "PostgresNotFound",
    "ProcessDied",
    "RemoteFailure",
    "RemoteLost",
    "RetryAfter",
    "RouteError",
    "RowsRefused",
    "RunCancelled",
    "RunInterrupted",
    "RunTimedOut",
    "SchemaNotMigrated",
    "SchemaTooNew",
    "SecretUnreadable",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "TraxError",
    "UnexpectedCancellation",
    "UnknownSetting",
    "UnknownTrain",
    "WaitTimedOut",
    "WiringError",
]

MAX_VALUE_CHARACTERS = 80
MAX_PROBLEMS = 20
"""How many problems one message names."""


class TraxError(Exception):
    """The base class of all errors that Trax raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with its message, and most of these need other arguments.
        return _unpickle, (type(self), self.args, self.__dict__)


def _unpickle(kind: type[TraxError], args: tuple[Any, ...], attributes: dict[str, Any]) -> TraxError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class DefinitionError(TraxError, ValueError):
    """Something declared in code is wrong."""


class RouteError(DefinitionError):
    """A route whose junctions do not fit together."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class UnknownTrain(DefinitionError, LookupError):
    """No train is registered under this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no train is registered as {format_value(name)}{did_you_mean(name, known)}")
        self.name = name


class InvalidSetting(DefinitionError):
    """A setting has an invalid value; `reasons` has the problem of each setting by its name."""

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class UnknownSetting(InvalidSetting, LookupError):
    """There is no setting of this name."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: its path, the reason, and its value; a secret is masked."""

    path: str
    message: str
    value: Any

    def __post_init__(self) -> None:
        from trax.masking import HIDDEN, hide_secrets, is_secret_name

        is_secret = self.value is not None and any(map(is_secret_name, self.path.split(".")))
        object.__setattr__(self, "value", HIDDEN if is_secret else hide_secrets(self.value))

    def __str__(self) -> str:
        from trax.masking import HIDDEN

        shown = HIDDEN if self.value is HIDDEN else format_value(self.value)
        return f"{self.path or 'the value itself'}: {self.message} (got {shown})"


class InvalidInput(TraxError, ValueError):
    """An input or output does not match its declared type; `errors` names every invalid field."""

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        named = [str(error) for error in errors[:MAX_PROBLEMS]]
        super().__init__(f"{subject}: {join_problems(named, len(errors))}")
        self.errors = tuple(errors)


class InvalidArgument(DefinitionError, InvalidInput):
    """An invalid argument or option, in a declaration or in a call."""

    def __init__(self, argument: str, expected: str, value: Any) -> None:
        TraxError.__init__(self, f"{argument} must be {expected} (got {format_value(value)})")
        self.argument, self.expected, self.value = argument, expected, value
        self.errors = (FieldError(argument, f"must be {expected}", value),)


class SecretUnreadable(InvalidInput):
    """A secret cannot be decrypted: it was not stored, its key is missing, or it is another record's."""


class WiringError(TraxError):
    """A value that a junction needs is missing at run time."""


class RunCancelled(TraxError):
    """The run was cancelled: by an operator, a timeout, or itself."""


class UnexpectedCancellation(TraxError):
    """The task of a run was cancelled, or its code raised `CancelledError`, though nobody cancelled the run.

    It counts as a failure, so that the run is retried: a stray `Task.cancel()` must not make work vanish.
    """


class RunTimedOut(RunCancelled, TimeoutError):
    """The run exceeded its timeout. It has failed, unless `timeout_counts_as_failure` is off."""


class Cancel(RunCancelled):
    """Raise this in a junction to end the run as cancelled, with a reason."""


class RunInterrupted(TraxError):
    """The run had to stop before its end and should run again."""


class DelayRequest(TraxError):
    """A request to run again after `delay`; use `RetryAfter` or `Snooze`."""

    def __init__(self, delay: timedelta, reason: str | None = None) -> None:
        from trax.clock import format_duration

        self.delay = _validate_delay(type(self).__name__, delay)
        super().__init__(reason or f"requested to run again after {format_duration(delay)}")


class RetryAfter(DelayRequest):
    """Raise this in a junction to fail, and to be retried after `delay` instead of the policy's delay.

    It counts like any other failure: after `max_attempts` the job becomes a dead letter.
    """


class Snooze(DelayRequest, RunInterrupted):
    """Raise this in a junction to stop now and run the same job again after `delay`.

    It is not a failure and does not count towards `max_attempts`: the job could not be done yet.
    """


def _validate_delay(name: str, delay: Any) -> timedelta:
    if not is_duration(delay):
        raise InvalidArgument(f"the delay of {name}", "a timedelta from 0 to 68 years", delay)
    return delay


class ProcessDied(TraxError):
    """The process of a cpu train ended during the run: it crashed, was killed, or exited."""


class RemoteFailure(TraxError):
    """An exception raised in another process; `type` and `raised` name its class and its base classes."""

    def __init__(
        self,
        message: str,
        *,
        type: str,  # noqa: A002 - the name that records use
        junction: str | None = None,
        stack_trace: str = "",
        raised: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.type = type
        self.junction = junction
        self.stack_trace = stack_trace
        self.raised = tuple(raised)


class RemoteLost(TraxError, ConnectionError):
    """The connection to the executor of a run broke before the run ended: its result is unknown here."""


class EndpointUnreachable(TraxError, ConnectionError):
    """The endpoint started nothing: the call did not arrive, or was rejected as busy too often."""


class EntryCancelled(TraxError):
    """The entry was withdrawn from the work queue before it ran."""


class WaitTimedOut(TraxError, TimeoutError):
    """The job did not end within the timeout of the wait; it continues."""


class NotFound(TraxError, LookupError):
    """No such record."""


class Conflict(TraxError):
    """The record has changed in the meantime: read it again, then retry."""


class MissingExtra(TraxError):
    """A feature needs packages that are not installed; `extra` is the extra that installs them."""

    def __init__(self, what: str, extra: str, module: str) -> None:
        super().__init__(
            f"{what} needs {module!r}, which is not installed: pip install 'trax-scheduler[{extra}]'"
        )
        self.extra = extra
        self.module = module


class AppImportError(TraxError):
    """The app's module raised an error on import."""


class PostgresNotFound(TraxError, LookupError):
    """No PostgreSQL server was found for `trax.testing.postgres`."""


class PostgresFailed(TraxError):
    """A PostgreSQL program of `trax.testing.postgres` failed; the message ends with its log."""


class StoreError(TraxError):
    """A database error. A retry may succeed where `transient` is true."""

    transient = False


class InvalidUrl(StoreError, ValueError):
    """Trax cannot use this database URL."""


class StoreUnavailable(StoreError, ConnectionError):
    """The database is unreachable, restarting or busy: a retry may succeed.

    `may_be_committed` is true if the connection was lost before the answer: what was written may be stored.
    """

    transient = True
    may_be_committed = False


class AccessDenied(StoreError):
    """The database refuses this user, file or statement."""


class RowsRefused(StoreError):
    """The database rejected the values of these rows. The transaction can continue without them."""


class SchemaNotMigrated(StoreError):
    """The tables are missing or older than this code."""


class SchemaTooNew(StoreError):
    """The tables are newer than this code."""


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A hint to append to a message: the most similar known name, or nothing."""
    from difflib import get_close_matches

    is_long = len(word) > MAX_VALUE_CHARACTERS  # comparing long words is slow
    nearest = [] if is_long else get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def join_problems(problems: Sequence[str], count: int | None = None) -> str:
    """Several problems in one message: the first ones, and how many more there are."""
    more = (len(problems) if count is None else count) - MAX_PROBLEMS
    return "; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more:,} more" if more > 0 else "")


def count_noun(count: int, noun: str, plural: str | None = None) -> str:
    """`1 job`, `1,200 jobs`, `2 entries`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def count_times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count:,} times"


def format_value(value: Any) -> str:
    """A value for a message: its repr, without secrets, cut to a readable length; a duration as text."""
    from trax.clock import format_duration
    from trax.masking import hide_in_text, hide_secrets, mask_url

    if isinstance(value, timedelta):
        return format_duration(value)
    try:
        text = (
            repr(mask_url(value) if "://" in value else value)
            if isinstance(value, str)
            else hide_in_text(repr(hide_secrets(value)))
        )
    except Exception:  # noqa: BLE001 - an int of more than 4,300 digits, or whatever a `__repr__` raises
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


P = ParamSpec("P")
T = TypeVar("T")


def explain_call(usage: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Report a call with wrong or missing arguments as a DefinitionError that shows how to call it."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                wrong = _call_error(function, args, kwargs)
                if wrong is None:
                    raise  # from inside the function
                raise DefinitionError(f"expected {usage}: {wrong}") from error

        return call

    return decorate


def _call_error(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    from inspect import signature

    parameters = signature(function)
    try:
        parameters.bind(*args, **kwargs)
    except TypeError as error:
        names = parameters.parameters
        unknown = next((name for name in kwargs if name not in names), "")
        return f"{error}{did_you_mean(unknown, names) if unknown else ''}"
    return None


def import_extra(module: str, *, extra: str, feature: str) -> ModuleType:
    """Import `module`, which `feature` needs and the extra `extra` installs.

    The module may be one of Trax's own that imports the packages of the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        absent = (missing.name or module).partition(".")[0]
        if absent == "trax":
            raise  # nothing to install: a bug in Trax itself
        raise MissingExtra(feature, extra, absent) from missing
