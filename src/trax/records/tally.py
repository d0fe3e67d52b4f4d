"""Totals of ended runs per minute and per hour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


class Span(StrEnum):
    """The length of time that one total covers."""

    MINUTE = "minute"
    HOUR = "hour"


SPAN_LENGTH: Final = {Span.MINUTE: timedelta(minutes=1), Span.HOUR: timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The numbers of ended runs by result; `seconds` is the total duration of the completed ones."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return self.completed + self.failed + self.cancelled

    def __add__(self, other: RunTotals) -> RunTotals:
        return RunTotals(
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.seconds + other.seconds,
        )


def span_start(moment: datetime, span: Span) -> datetime:
    """The start of the minute or hour of this moment."""
    minute = 0 if span is Span.HOUR else moment.minute
    return moment.replace(minute=minute, second=0, microsecond=0)
