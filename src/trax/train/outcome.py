"""The outcome of a run, as a value: `Done | Failed | Cancelled | Interrupted`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeAlias, TypeVar, assert_never

from trax.errors import RunCancelled, RunInterrupted, RunTimedOut
from trax.train.failure import TrainExceptionData

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
