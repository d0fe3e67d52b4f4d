"""A worker as people see it: whether it lives, and what it runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from trax.records.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """One run that a worker holds."""

    id: int
    train: str
    manifest: str | None
    started_at: datetime
    current_junction: str | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, how long ago it was heard, and the first of what it runs; `running` is how many that is."""

    worker: Worker
    silent_for: timedelta
    is_lost: bool
    running: int
    jobs: tuple[RunningJob, ...] = ()

    @property
    def free_slots(self) -> int:
        return max(0, self.worker.concurrency - self.running)
