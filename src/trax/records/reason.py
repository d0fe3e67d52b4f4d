"""Why something does not run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps a job from running: for programs a `code`, for people a `text`.

    `until` is when it ends by itself, where that is known; `ids` are the rows it is about.
    """

    code: str
    """For programs."""
    text: str
    """For people."""
    until: datetime | None = None
    """When it ends by itself, where that is known."""
    ids: tuple[int, ...] = ()
    """The rows it is about."""

    def __str__(self) -> str:
        return self.text
