"""Every error a caller can meet, in one tree.

TraxError
├── DefinitionError          something declared in code is wrong
│   ├── RouteError           a route whose junctions do not fit together (CHAIN001, CHAIN002)
│   ├── UnknownTrain         no train is registered under this name
│   └── InvalidSetting       a setting has a value that cannot work
├── InvalidInput             an input or output that its declared type refuses
│   ├── InvalidArgument      an argument or option that cannot work (also a DefinitionError)
│   └── SecretUnreadable     a secret in it cannot be read here: it was not kept, or its key is missing
├── WiringError              a value a junction asks for is not there at run time
├── RunCancelled             the run was cancelled: by a person, a timeout, or itself
│   └── RunTimedOut          it took longer than it may
├── RunInterrupted           the run had to stop before its end and should run again
├── ProcessDied              the process a cpu train ran in did not survive the run
├── RemoteFailure            what a run raised in another process, told here
├── RemoteLost               the connection to whoever executed a run broke before its end
├── EntryCancelled           the entry was withdrawn from the work queue before it ran
├── NotFound                 no such record
├── Conflict                 somebody else has changed it meanwhile
├── MissingExtra             what was asked for needs packages that are not installed
└── StoreError               the database said no
    ├── InvalidUrl           the address is not one Trax can use
    ├── StoreUnavailable     unreachable, restarting or busy: trying again may help
    ├── AccessDenied         the database refuses this user, this file or this statement
    ├── SchemaNotMigrated    the tables are missing or older than this code
    └── SchemaTooNew         the tables are newer than this code
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from trax.masking import HIDDEN, hide_in_text, hide_secrets, is_secret_name, mask_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SHOWN_CHARACTERS = 80


class TraxError(Exception):
    """The root: catch this to catch everything Trax raises on its own account."""


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
    """A setting has a value that cannot work; `reasons` has what is wrong with each by its name."""

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that was refused: where it is, why, and what stood there, unless that is a secret."""

    path: str
    message: str
    value: Any

    def __post_init__(self) -> None:
        is_secret = self.value is not None and any(map(is_secret_name, self.path.split(".")))
        object.__setattr__(self, "value", HIDDEN if is_secret else hide_secrets(self.value))

    def __str__(self) -> str:
        got = HIDDEN if self.value is HIDDEN else shown(self.value)
        return f"{self.path or 'the value itself'}: {self.message} (got {got})"


class InvalidInput(TraxError):
    """An input or output that its declared type refuses; `errors` names every bad field."""

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        super().__init__(f"{subject}: " + "; ".join(str(error) for error in errors))
        self.errors = tuple(errors)


class InvalidArgument(DefinitionError, InvalidInput):
    """An argument or option that cannot work, where it was given: in a declaration or in a call."""

    def __init__(self, place: str, wanted: str, value: Any) -> None:
        TraxError.__init__(self, f"{place} must be {wanted} (got {shown(value)})")
        self.place, self.wanted, self.value = place, wanted, value
        self.errors = (FieldError(place, f"must be {wanted}", value),)


class SecretUnreadable(InvalidInput):
    """A stored secret cannot be read here: it was not kept, its key is missing, or it belongs elsewhere."""


class WiringError(TraxError):
    """A value a junction asks for is not there at run time."""


class RunCancelled(TraxError):
    """The run was cancelled: by a person, a timeout, or itself."""


class RunTimedOut(RunCancelled):
    """The run took longer than it may."""


class RunInterrupted(TraxError):
    """The run had to stop before its end and should run again."""


class ProcessDied(TraxError):
    """The process a cpu train ran in did not survive the run: it crashed, was killed, or left by itself."""


class RemoteFailure(TraxError):
    """What a run raised in another process: the class there and those it derives from, by their names."""

    def __init__(
        self,
        message: str,
        *,
        type: str,  # noqa: A002 - the word that records have for it
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
    """The connection to whoever executed a run broke before its end: nobody here knows how it ended."""


class EntryCancelled(TraxError):
    """The entry was withdrawn from the work queue before it ran."""


class NotFound(TraxError):
    """No such record."""


class Conflict(TraxError):
    """Somebody else has changed it meanwhile: look again, and decide anew."""


class MissingExtra(TraxError):
    """What was asked for needs packages that are not installed; `extra` is the name that brings them."""

    def __init__(self, what: str, extra: str, module: str) -> None:
        super().__init__(
            f"{what} needs {module!r}, which is not installed: pip install 'trax-scheduler[{extra}]'"
        )
        self.extra = extra
        self.module = module


class StoreError(TraxError):
    """The database said no. `transient` errors may pass when tried again."""

    transient = False


class InvalidUrl(StoreError):
    """The address is not one Trax can use."""


class StoreUnavailable(StoreError):
    """The database is unreachable, restarting or busy: trying again may help."""

    transient = True


class AccessDenied(StoreError):
    """The database refuses this user, this file or this statement."""


class SchemaNotMigrated(StoreError):
    """The tables are missing or older than this code."""


class SchemaTooNew(StoreError):
    """The tables are newer than this code."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to append to a message: the nearest known word, or nothing."""
    is_long = len(word) > SHOWN_CHARACTERS  # looking for something like it would take its time
    nearest = [] if is_long else get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def shown(value: Any) -> str:
    """A value as it may stand in a message: its repr, without secrets, cut to a readable length."""
    try:
        text = (
            repr(mask_url(value) if "://" in value else value)
            if isinstance(value, str)
            else hide_in_text(repr(hide_secrets(value)))
        )
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
