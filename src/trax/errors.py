"""All errors that Trax raises to callers, as one class tree.

TraxError
├── DefinitionError          something declared in code is wrong
│   ├── RouteError           a route whose junctions do not fit together (CHAIN001, CHAIN002)
│   ├── UnknownTrain         no train is registered under this name
│   └── InvalidSetting       a setting has an invalid value
├── InvalidInput             an input or output does not match its declared type
│   ├── InvalidArgument      an invalid argument or option (also a DefinitionError)
│   └── SecretUnreadable     a secret in it cannot be decrypted: it was not stored, or its key is missing
├── WiringError              a value that a junction needs is missing at run time
├── RunCancelled             the run was cancelled: by an operator, a timeout, or itself
│   └── RunTimedOut          it exceeded its timeout
├── RunInterrupted           the run had to stop before its end and should run again
├── ProcessDied              the process of a cpu train ended during the run
├── RemoteFailure            an exception that a run raised in another process
├── RemoteLost               the connection to the executor of a run broke before the run ended
├── EntryCancelled           the entry was withdrawn from the work queue before it ran
├── NotFound                 no such record
├── Conflict                 the record has changed in the meantime
├── MissingExtra             a feature needs packages that are not installed
└── StoreError               a database error
    ├── InvalidUrl           Trax cannot use this database URL
    ├── StoreUnavailable     unreachable, restarting or busy: a retry may succeed
    ├── AccessDenied         the database refuses this user, file or statement
    ├── SchemaNotMigrated    the tables are missing or older than this code
    └── SchemaTooNew         the tables are newer than this code
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trax.masking import HIDDEN, hide_in_text, hide_secrets, is_secret_name, mask_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import ModuleType


MAX_VALUE_CHARACTERS = 80


class TraxError(Exception):
    """The base class of all errors that Trax raises."""


class DefinitionError(TraxError):
    """Something declared in code is wrong."""


class RouteError(DefinitionError):
    """A route whose junctions do not fit together."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class UnknownTrain(DefinitionError):
    """No train is registered under this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no train is registered as {name!r}{did_you_mean(name, known)}")
        self.name = name


class InvalidSetting(DefinitionError):
    """A setting has an invalid value; `reasons` has the problem of each setting by its name."""

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field: its path, the reason, and its value; a secret is masked."""

    path: str
    message: str
    value: Any

    def __post_init__(self) -> None:
        is_secret = self.value is not None and any(map(is_secret_name, self.path.split(".")))
        object.__setattr__(self, "value", HIDDEN if is_secret else hide_secrets(self.value))

    def __str__(self) -> str:
        got = HIDDEN if self.value is HIDDEN else format_value(self.value)
        return f"{self.path or 'the value itself'}: {self.message} (got {got})"


class InvalidInput(TraxError):
    """An input or output does not match its declared type; `errors` names every invalid field."""

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        super().__init__(f"{subject}: " + "; ".join(str(error) for error in errors))
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


class RunTimedOut(RunCancelled):
    """The run exceeded its timeout."""


class RunInterrupted(TraxError):
    """The run had to stop before its end and should run again."""


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


class RemoteLost(TraxError):
    """The connection to the executor of a run broke before the run ended: its result is unknown here."""


class EntryCancelled(TraxError):
    """The entry was withdrawn from the work queue before it ran."""


class NotFound(TraxError):
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


class StoreError(TraxError):
    """A database error. A retry may succeed where `transient` is true."""

    transient = False


class InvalidUrl(StoreError):
    """Trax cannot use this database URL."""


class StoreUnavailable(StoreError):
    """The database is unreachable, restarting or busy: a retry may succeed."""

    transient = True


class AccessDenied(StoreError):
    """The database refuses this user, file or statement."""


class SchemaNotMigrated(StoreError):
    """The tables are missing or older than this code."""


class SchemaTooNew(StoreError):
    """The tables are newer than this code."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to append to a message: the most similar known name, or nothing."""
    is_long = len(word) > MAX_VALUE_CHARACTERS  # comparing long words is slow
    nearest = [] if is_long else get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def format_value(value: Any) -> str:
    """A value for a message: its repr, without secrets, cut to a readable length."""
    try:
        text = (
            repr(mask_url(value) if "://" in value else value)
            if isinstance(value, str)
            else hide_in_text(repr(hide_secrets(value)))
        )
    except ValueError:  # Python does not print an int of more than 4,300 digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


def import_extra(module: str, *, extra: str, feature: str) -> ModuleType:
    """Import `module`, which the feature `by` needs and the extra `extra` installs.

    The module may be one of Trax's own that imports the packages of the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        absent = (missing.name or module).partition(".")[0]
        if absent == "trax":
            raise  # nothing to install: a bug in Trax itself
        raise MissingExtra(feature, extra, absent) from missing
