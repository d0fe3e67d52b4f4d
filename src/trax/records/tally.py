"""How many runs ended in a span of time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


class Span(StrEnum):
    """How long a piece of time is."""

    MINUTE = "minute"
    HOUR = "hour"


LENGTH: Final = {Span.MINUTE: timedelta(minutes=1), Span.HOUR: timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class Sums:
    """How many runs ended, and how; `seconds` is what those that completed took in all."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    seconds: float = 0.0

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.seconds + other.seconds,
        )


def begun(moment: datetime, span: Span) -> datetime:
    """When the minute or hour of this moment began."""
    minute = 0 if span is Span.HOUR else moment.minute
    return moment.replace(minute=minute, second=0, microsecond=0)
