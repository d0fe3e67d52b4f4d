"""Log records as lines: for people who read them, and for programs that collect them.

What a job says may neither pretend to be another line nor steer the terminal that shows it (`escapes.py`).
Both are plain formatters of the standard library, so an app that sets up logging itself can use them too.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trax.escapes import visible_json, visible_text
from trax.train import current

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)
"""What every record has. Whatever else it carries was given as `extra`."""


class TextLines(logging.Formatter):
    """`time level logger: message key=value…`, one line a record; a traceback follows, moved in."""

    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f" {name}={_word(value)}" for name, value in _extras(record).items())
        line = f"{_moment(record, ' ')} {record.levelname} {record.name}: {message_of(record)}{extras}"
        trace = "".join(f"\n  {visible_text(below)}" for below in _trace(self, record).split("\n"))
        return visible_text(line) + (trace if trace.strip() else "")


class JsonLines(logging.Formatter):
    """One JSON document a line; `extras` and `exception` are there only if the record has any."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _moment(record, "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        if extras := _extras(record):
            document["extras"] = {name: _plain(value) for name, value in extras.items()}
        if trace := _trace(self, record):
            document["exception"] = trace
        return visible_json(json.dumps(document, default=str))


def message_of(record: logging.LogRecord) -> str:
    """What was said; arguments that do not fit must not lose the line, let alone the run that logged it."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001
        return f"{record.msg} (its arguments do not fit)"


def _moment(record: logging.LogRecord, between: str) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(between, timespec="milliseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> Mapping[str, Any]:
    """What the record was given, after the run that logged it, if one did."""
    given = {name: value for name, value in vars(record).items() if name not in KNOWN}
    run = current()
    return given if run is None else {"metadata_id": run.metadata_id, "train": run.train, **given}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    raised = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
    stack = record.stack_info and formatter.formatStack(record.stack_info)
    return "\n".join(part for part in (raised, stack) if part)


def _plain(value: Any) -> Any:
    """The value if it can be JSON, else its text."""
    try:
        json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _word(value: Any) -> str:
    """Plain if it cannot be mistaken for several words, else in quotes."""
    text = str(value)
    return text if text and not any(one.isspace() or one in '"=' for one in text) else json.dumps(text)
