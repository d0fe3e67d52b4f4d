"""How a run ended (Done, Failed, Cancelled, Interrupted), and the error details of a failure."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, assert_never

from trax.errors import RemoteFailure, RunCancelled, RunInterrupted, RunTimedOut

if TYPE_CHECKING:
    from types import TracebackType


T = TypeVar("T")

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Done(Generic[T_co]):
    """The run completed with this value."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Failed:
    """A junction raised, or a value it needs was missing.

    The error need not be an Exception: it can be SystemExit, or a panic of a library written in Rust.
    """

    error: BaseException
    failure: TrainExceptionData


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The run was cancelled, by a request or by itself; `timed_out`: it exceeded its timeout."""

    reason: str
    timed_out: bool = False
    error: Exception | None = field(default=None, kw_only=True, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The run had to stop and should run again: at once, or after `delay` if it requested one."""

    reason: str
    delay: timedelta | None = None
    error: Exception | None = field(default=None, kw_only=True, compare=False, repr=False)


Outcome: TypeAlias = Done[T_co] | Failed | Cancelled | Interrupted


def result_of(outcome: Outcome[T]) -> T:
    """The value of a completed run; any other outcome is raised as its error."""
    if isinstance(outcome, Done):
        return outcome.value
    raise error_of(outcome)


def error_of(outcome: Failed | Cancelled | Interrupted) -> BaseException:
    """The exception for an outcome other than Done."""
    match outcome:
        case Failed(error):
            return error
        case Cancelled(reason, timed_out):
            return outcome.error or (RunTimedOut(reason) if timed_out else RunCancelled(reason))
        case Interrupted(reason):
            return outcome.error or RunInterrupted(reason)
        case _:
            assert_never(outcome)


PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class TrainExceptionData:
    """A failure as plain values: the train, the junction, and the exception."""

    train_name: str
    train_external_id: str
    type: str
    junction: str | None
    message: str
    stack_trace: str


def describe(
    error: BaseException, *, train: str, external_id: str, junction: str | None
) -> TrainExceptionData:
    """Describe a failure of this train, and attach the description to the exception as `trax_data`.

    An exception that passes through several trains keeps the description of the innermost one.
    """
    is_remote = isinstance(error, RemoteFailure)  # then the details of the remote error are the useful ones
    failure = TrainExceptionData(
        train_name=train,
        train_external_id=external_id,
        type=error.type if is_remote else type(error).__name__,
        junction=error.junction if is_remote else junction,
        message=_message(error),
        stack_trace=error.stack_trace if is_remote else _stack_trace(error),
    )
    with suppress(Exception):  # an exception class may refuse new attributes
        if getattr(error, "trax_data", None) is None:
            error.trax_data = failure  # pyright: ignore[reportAttributeAccessIssue]
        error.add_note(_note(failure))
    return failure


def _note(failure: TrainExceptionData) -> str:
    where = f"junction {failure.junction!r} of " if failure.junction else ""
    return f"in {where}train {failure.train_name!r} (run {failure.train_external_id})"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return f"<{type(error).__name__} without a readable message>"


def _stack_trace(error: BaseException) -> str:
    """The traceback without the frames of Trax above the junction."""
    return "".join(traceback.format_exception(type(error), error, _from_junction(error.__traceback__)))


def _from_junction(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(PACKAGE):
        trace = trace.tb_next
    return trace or first
