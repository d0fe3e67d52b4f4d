"""What a run logged."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trax.records.states import LogLevel

MESSAGE_CHARACTERS: Final = 4000
LOGGER_CHARACTERS: Final = 500
EXCEPTION_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLine:
    """A line to be written down. What is too long is cut where the line is made."""

    metadata_id: int
    """The run that logged it."""
    created_at: datetime
    """When, by the database's clock."""
    level: LogLevel
    """How grave it is."""
    logger: str
    """The name of the logger."""
    message: str
    """What it said."""
    exception: str | None = None
    """The exception that was logged with it."""
    stack_trace: str | None = None
    """And its traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(NewLine):
    """One line that a run logged."""

    id: int
    """Its number, by which to read on."""
