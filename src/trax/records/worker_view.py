"""A worker with its state and its runs, for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from trax.records.worker import WorkerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """One run that a worker holds now."""

    id: int
    train: str
    manifest: str | None
    started_at: datetime
    current_junction: str | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, the time since its last heartbeat, and its first runs; `running` counts all its runs."""

    worker: WorkerRecord
    silent_for: timedelta
    is_lost: bool
    running: int
    jobs: tuple[RunningJob, ...] = ()

    @property
    def free_slots(self) -> int:
        return max(0, self.worker.concurrency - self.running)
