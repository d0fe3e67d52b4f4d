"""How the whole stands, as somebody sees it who keeps watching."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.status import Status


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The runs of one train that are in progress; how far the one that has come furthest has come."""

    train: str
    count: int
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A manifest that is looked at next, and when."""

    manifest: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed."""

    metadata_id: int
    train: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What waits, what runs, what has ended in the last minute, and what comes next."""

    status: Status
    under_way: tuple[UnderWay, ...]
    completed: int
    failed: int
    next_due: tuple[Due, ...]
    last_failure: Failure | None
