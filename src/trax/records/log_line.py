"""Log lines of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trax.records.states import LogLevel

MESSAGE_CHARACTERS: Final = 4000
LOGGER_CHARACTERS: Final = 500
EXCEPTION_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLogLine:
    """A log line to be written; long text is already cut."""

    metadata_id: int
    """The run that logged it."""
    created_at: datetime
    """When, by the database's clock."""
    level: LogLevel
    """The log level."""
    logger: str
    """The name of the logger."""
    message: str
    """The message."""
    exception: str | None = None
    """The exception logged with it."""
    stack_trace: str | None = None
    """The traceback of the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(NewLogLine):
    """One log line of a run."""

    id: int
    """Its id; pass it to read the lines after it."""
