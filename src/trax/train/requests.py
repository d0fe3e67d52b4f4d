"""What a junction raises to say how its run is to go on: `Cancel`, `RetryAfter`, `Snooze`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.bounds import is_duration
from trax.errors import InvalidArgument, RunCancelled, RunInterrupted, TraxError

if TYPE_CHECKING:
    from datetime import timedelta


class Cancel(RunCancelled):
    """Raise this in a junction to end the run as cancelled, for the reason given."""


class Later(TraxError):
    """A wish to run again once `delay` is over; use `RetryAfter` or `Snooze`."""

    def __init__(self, delay: timedelta, reason: str | None = None) -> None:
        self.delay = _checked(type(self).__name__, delay)
        super().__init__(reason or f"asked to run again after {delay}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, str(self))


class RetryAfter(Later):
    """Raise this in a junction to fail, and to be tried again after `delay` instead of the policy's wait.

    It counts like any other failure: one too many still makes a dead letter.
    """


class Snooze(Later, RunInterrupted):
    """Raise this in a junction to stop for now and have the same job run again after `delay`.

    It is no failure, and nothing counts it: the job could not be done yet.
    """


def _checked(name: str, delay: Any) -> timedelta:
    if not is_duration(delay):
        raise InvalidArgument(f"the delay of {name}", "a timedelta from 0 to 68 years", delay)
    return delay
