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
    created_at: datetime
    level: LogLevel
    logger: str
    message: str
    exception: str | None = None
    stack_trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(NewLine):
    """One line that a run logged."""

    id: int
