"""How a run goes and ends, as lines of JSON from the far side to the near side. No line can bring code."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from trax.admin.policies import qualified_name
from trax.errors import RemoteFailure, RunCancelled, RunInterrupted, RunTimedOut, TraxError
from trax.train import Cancelled, Done, Failed, Interrupted, RetryAfter
from trax.train.failure import TrainExceptionData, describe
from trax.train.requests import Snooze

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.train import Outcome


def line(what: str, value: Any) -> bytes:
    return json.dumps({what: value}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def ending_line(outcome: Outcome[Any], written: Callable[[Any], str | None]) -> bytes:
    """The last line; `written` makes JSON text of an output, or nothing where it has none."""
    match outcome:
        case Done(value):
            return b'{"done":' + (written(value) or "null").encode() + b"}\n"
        case Failed(error, failure):
            return line(
                "failed",
                {
                    "type": failure.type,
                    "message": failure.message,
                    "junction": failure.junction,
                    "stack_trace": failure.stack_trace,
                    "raised": [qualified_name(each) for each in type(error).__mro__],
                    "retry_after": _seconds(error.delay) if isinstance(error, RetryAfter) else None,
                },
            )
        case Cancelled(reason, timed_out):
            return line("cancelled", {"reason": reason, "timed_out": timed_out})
        case Interrupted(reason, delay):
            return line("interrupted", {"reason": reason, "delay": _seconds(delay)})
        case _:
            assert_never(outcome)


def outcome_told(
    told: Mapping[str, Any], read: Callable[[str], Any], *, train: str, external_id: str
) -> Outcome[Any] | None:
    """The outcome that a line tells, if it tells one; `read` makes an output of JSON text."""
    match told:
        case {"done": value}:
            return Done(read(json.dumps(value)))
        case {"failed": value}:
            return _failed(value, train, external_id)
        case {"cancelled": value}:
            return Cancelled(value["reason"], bool(value["timed_out"]))
        case {"interrupted": value}:
            return Interrupted(value["reason"], _span(value["delay"]))
        case _:
            return None


def outcome_of(error: Exception, *, train: str) -> Outcome[Any]:
    """What somebody raised who ran a train, as the outcome it stands for."""
    if isinstance(error, RunCancelled):
        return Cancelled(str(error), isinstance(error, RunTimedOut))
    if isinstance(error, RunInterrupted):
        return Interrupted(str(error), error.delay if isinstance(error, Snooze) else None)
    known: TrainExceptionData | None = getattr(error, "trax_data", None)
    return Failed(error, known or describe(error, train=train, external_id="", junction=None))


def log_told(value: Mapping[str, Any]) -> logging.LogRecord:
    """A line of the far side's log, as if it had been written here."""
    level = int(value["level"])
    return logging.makeLogRecord(
        {
            "name": str(value["logger"]),
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "msg": str(value["message"]),
            "exc_text": value.get("trace"),
        }
    )


def _failed(value: Mapping[str, Any], train: str, external_id: str) -> Failed:
    after, message = _span(value.get("retry_after")), str(value["message"])
    junction, trace = value.get("junction"), str(value.get("stack_trace") or "")
    remote = RemoteFailure(
        message,
        type=str(value["type"]),
        junction=junction,
        stack_trace=trace,
        raised=[str(name) for name in value.get("raised", ())],
    )
    failure = describe(remote, train=train, external_id=external_id, junction=junction)
    error: TraxError = remote if after is None else RetryAfter(after, message)
    return Failed(error, failure)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
