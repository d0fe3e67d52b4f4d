"""Encode and decode events and outcomes of a run as JSON lines. No line can carry code."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from trax.engine.retry import full_class_name
from trax.errors import (
    RemoteFailure,
    RetryAfter,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
    Snooze,
    TraxError,
)
from trax.train import Cancelled, Done, Failed, Interrupted
from trax.train.outcome import TrainExceptionData, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.train import Outcome


def event_line(kind: str, value: Any) -> bytes:
    """An event as a line; a lone surrogate in its texts becomes `?`, as in a record."""
    text = json.dumps({kind: value}, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"


def outcome_line(outcome: Outcome[Any], encode: Callable[[Any], str | None]) -> bytes:
    """The last line of a run; `encode` returns an output as JSON text, or None."""
    match outcome:
        case Done(value):
            return b'{"done":' + (encode(value) or "null").encode() + b"}\n"
        case Failed(error, failure):
            return event_line(
                "failed",
                {
                    "type": failure.type,
                    "message": failure.message,
                    "junction": failure.junction,
                    "stack_trace": failure.stack_trace,
                    "raised": [full_class_name(each) for each in type(error).__mro__],
                    "retry_after": _seconds(error.delay) if isinstance(error, RetryAfter) else None,
                },
            )
        case Cancelled(reason, timed_out):
            return event_line("cancelled", {"reason": reason, "timed_out": timed_out})
        case Interrupted(reason, delay):
            return event_line("interrupted", {"reason": reason, "delay": _seconds(delay)})
        case _:
            assert_never(outcome)


def parse_outcome(
    message: Mapping[str, Any], decode: Callable[[str], Any], *, train: str, external_id: str
) -> Outcome[Any] | None:
    """The outcome in a line, or None if it is another event; `decode` decodes the output."""
    match message:
        case {"done": value}:
            return Done(decode(json.dumps(value)))
        case {"failed": value}:
            return _parse_failure(value, train, external_id)
        case {"cancelled": value}:
            return Cancelled(value["reason"], bool(value["timed_out"]))
        case {"interrupted": value}:
            return Interrupted(value["reason"], _span(value["delay"]))
        case _:
            return None


def outcome_of(error: Exception, *, train: str) -> Outcome[Any]:
    """The outcome for an exception raised by a train."""
    if isinstance(error, RunCancelled):
        return Cancelled(str(error), isinstance(error, RunTimedOut))
    if isinstance(error, RunInterrupted):
        return Interrupted(str(error), error.delay if isinstance(error, Snooze) else None)
    known: TrainExceptionData | None = getattr(error, "trax_data", None)
    return Failed(error, known or describe(error, train=train, external_id="", junction=None))


def parse_log_record(value: Mapping[str, Any]) -> logging.LogRecord:
    """A log record of the worker side, for the logging of this process."""
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


def _parse_failure(value: Mapping[str, Any], train: str, external_id: str) -> Failed:
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
