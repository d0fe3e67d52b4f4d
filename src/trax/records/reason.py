"""Reasons why a job does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job does not run."""

    code: str
    """The reason in one word, for programs."""
    text: str
    """The reason as a sentence, for people."""
    until: datetime | None = None
    """When the reason ends by itself, if that is known."""
    ids: tuple[int, ...] = ()
    """The ids of the rows that cause it."""

    def __str__(self) -> str:
        return self.text
