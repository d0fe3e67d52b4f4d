"""Log formatters: text lines for people, JSON lines for log collectors.

Control characters are escaped (`escapes.py`), so a job can neither forge a line nor control the terminal.
Both are standard library formatters: an app that configures logging itself can use them.
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

RECORD_FIELDS: Final = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)
"""Attributes of every record. All others were passed as `extra`."""


class TextLines(logging.Formatter):
    """`time level logger: message key=value…`, one line a record; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f" {name}={_quote(value)}" for name, value in _extras(record).items())
        line = f"{_format_time(record, ' ')} {record.levelname} {record.name}: {message_of(record)}{extras}"
        trace = "".join(f"\n  {visible_text(below)}" for below in _trace(self, record).split("\n"))
        return visible_text(line) + (trace if trace.strip() else "")


class JsonLines(logging.Formatter):
    """One JSON document a line; `extras` and `exception` only if the record has them."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _format_time(record, "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        if extras := _extras(record):
            document["extras"] = {name: _json_value(value) for name, value in extras.items()}
        if trace := _trace(self, record):
            document["exception"] = trace
        return visible_json(json.dumps(document, default=str))


def message_of(record: logging.LogRecord) -> str:
    """The formatted message. Wrong arguments must neither lose the line nor fail the run that logged it."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001
        return f"{record.msg} (invalid log arguments)"


def _format_time(record: logging.LogRecord, separator: str) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(separator, timespec="milliseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> Mapping[str, Any]:
    """The `extra` fields of the record, after the id and train of the current run."""
    extras = {name: value for name, value in vars(record).items() if name not in RECORD_FIELDS}
    run = current()
    return extras if run is None else {"metadata_id": run.metadata_id, "train": run.train, **extras}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    raised = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
    stack = record.stack_info and formatter.formatStack(record.stack_info)
    return "\n".join(part for part in (raised, stack) if part)


def _json_value(value: Any) -> Any:
    """The value if it can be encoded as JSON, else its text."""
    try:
        json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _quote(value: Any) -> str:
    """The text of the value, quoted if it is empty or contains spaces, quotes or `=`."""
    text = str(value)
    return text if text and not any(one.isspace() or one in '"=' for one in text) else json.dumps(text)
