"""The numbers of the live terminal view."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.status import Status


@dataclass(frozen=True, slots=True)
class RunningTrain:
    """The runs of one train that are in progress; `progress` is that of the most advanced run."""

    train: str
    count: int
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class NextDue:
    """A manifest and its next due time."""

    manifest: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LastFailure:
    """The last failed run."""

    metadata_id: int
    train: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """The status, running trains, runs ended in the last minute, next due manifests and the last failure."""

    status: Status
    running: tuple[RunningTrain, ...]
    completed: int
    failed: int
    next_due: tuple[NextDue, ...]
    last_failure: LastFailure | None
