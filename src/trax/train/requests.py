"""Exceptions a junction raises to control its run: `Cancel`, `RetryAfter`, `Snooze`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.bounds import is_duration
from trax.errors import InvalidArgument, RunCancelled, RunInterrupted, TraxError

if TYPE_CHECKING:
    from datetime import timedelta


class Cancel(RunCancelled):
    """Raise this in a junction to end the run as cancelled, with a reason."""


class DelayRequest(TraxError):
    """A request to run again after `delay`; use `RetryAfter` or `Snooze`."""

    def __init__(self, delay: timedelta, reason: str | None = None) -> None:
        self.delay = _validate_delay(type(self).__name__, delay)
        super().__init__(reason or f"requested to run again after {delay.total_seconds():g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, str(self))


class RetryAfter(DelayRequest):
    """Raise this in a junction to fail, and to be retried after `delay` instead of the policy's delay.

    It counts like any other failure: after `max_retries` the job becomes a dead letter.
    """


class Snooze(DelayRequest, RunInterrupted):
    """Raise this in a junction to stop now and run the same job again after `delay`.

    It is not a failure and does not count towards `max_retries`: the job could not be done yet.
    """


def _validate_delay(name: str, delay: Any) -> timedelta:
    if not is_duration(delay):
        raise InvalidArgument(f"the delay of {name}", "a timedelta from 0 to 68 years", delay)
    return delay
