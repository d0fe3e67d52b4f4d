"""Encode and decode events and outcomes of a run as JSON lines. No line can carry code.

Lines are decoded as those of a stranger: every value has its type and its bounds, or ValueError is raised.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from trax.bounds import LONGEST_NAME, duration_within_bounds, is_integer, is_number, load_json
from trax.engine.retry import full_class_name
from trax.errors import (
    RemoteFailure,
    RetryAfter,
    RunCancelled,
    RunInterrupted,
    RunTimedOut,
    Snooze,
    TraxError,
    format_value,
)
from trax.records.metadata import LOGGER_CHARACTERS
from trax.train import Cancelled, Done, Failed, Interrupted
from trax.train.outcome import TrainExceptionData, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from trax.train import Outcome

OUTCOMES: Final = frozenset({"done", "failed", "cancelled", "interrupted"})
MOST_CLASSES: Final = 100
"""How many classes of an error are read."""


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


def parse_line(line: str | bytes) -> Mapping[str, Any]:
    """A line of a response: one event or outcome."""
    value = load_json(line or "{}")
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - invalid JSON is a ValueError, too
    return cast("Mapping[str, Any]", value)


def parse_outcome(
    message: Mapping[str, Any], decode: Callable[[str], Any], *, train: str, external_id: str
) -> Outcome[Any] | None:
    """The outcome in a line, or None if it is another event; `decode` decodes the output."""
    match message:
        case {"done": value}:
            return Done(decode(json.dumps(value)))
        case {"failed": {"type": str(), "message": str()} as value}:
            return _parse_failure(cast("Mapping[str, Any]", value), train, external_id)
        case {"cancelled": {"reason": str(reason), "timed_out": bool(timed_out)}}:
            return Cancelled(reason, timed_out)
        case {"interrupted": {"reason": str(reason), "delay": delay}}:
            return Interrupted(reason, _parse_span(delay))
        case _ if message.keys().isdisjoint(OUTCOMES):
            return None
        case _:
            raise ValueError(f"invalid outcome {format_value(dict(message))}")


def parse_event(kind: str, value: Any) -> list[Any]:
    """The arguments for the handler of an event: progress, a junction that begins, or a log line."""
    match kind, value:
        case "progress", [fraction, (None | str()) as message] if is_number(fraction, 0, 1):
            return [float(fraction), message]
        case "junction", str(junction):
            return [junction[:LONGEST_NAME]]
        case "log", {"logger": str(), "level": level, "message": str()} if is_integer(level):
            return [_parse_log_record(cast("Mapping[str, Any]", value))]
        case _:
            raise ValueError(f"invalid {kind} {format_value(value)}")


def outcome_of(error: Exception, *, train: str) -> Outcome[Any]:
    """The outcome for an exception raised by a train."""
    if isinstance(error, RunCancelled):
        return Cancelled(str(error), isinstance(error, RunTimedOut))
    if isinstance(error, RunInterrupted):
        return Interrupted(str(error), error.delay if isinstance(error, Snooze) else None)
    known: TrainExceptionData | None = getattr(error, "trax_data", None)
    return Failed(error, known or describe(error, train=train, external_id="", junction=None))


def _parse_log_record(value: Mapping[str, Any]) -> logging.LogRecord:
    """A log record of the worker side, for the logging of this process."""
    level: int = value["level"]
    return logging.makeLogRecord(
        {
            "name": value["logger"][:LOGGER_CHARACTERS],
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "msg": value["message"],
            "exc_text": _parse_text(value.get("trace")),
        }
    )


def _parse_failure(value: Mapping[str, Any], train: str, external_id: str) -> Failed:
    after, message, junction = _parse_span(value.get("retry_after")), value["message"], value.get("junction")
    raised = value.get("raised")
    remote = RemoteFailure(
        message,
        type=value["type"][:LONGEST_NAME],
        junction=None if junction is None else str(junction)[:LONGEST_NAME],
        stack_trace=_parse_text(value.get("stack_trace")) or "",
        raised=_parse_names(raised) if isinstance(raised, list) else [],
    )
    failure = describe(remote, train=train, external_id=external_id, junction=remote.junction)
    error: TraxError = remote if after is None else RetryAfter(after, message)
    return Failed(error, failure)


def _parse_names(values: Any) -> list[str]:
    return [str(value)[:LONGEST_NAME] for value in values[:MOST_CLASSES]]


def _parse_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _parse_span(seconds: Any) -> timedelta | None:
    """A duration; one beyond the bounds becomes the longest or zero."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise ValueError(f"invalid number of seconds {format_value(seconds)}")  # noqa: TRY004
    return duration_within_bounds(seconds)
