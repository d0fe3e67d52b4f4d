"""Which train runs when, and the groups that share limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trax.records.states import ScheduleType


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """Manifests that share a limit and a priority."""

    id: int
    name: str
    priority: int = 0
    max_active_jobs: int | None = None
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Which train runs when, with what input and how often it may fail."""

    id: int
    external_id: str
    train: str
    group: str
    schedule: str | None = None
    schedule_type: ScheduleType
    enabled: bool = True
    priority: int = 0
    max_retries: int = 3
    timeout: timedelta | None = None
    depends_on: str | None = None
    input: Any = None
    failure_count: int = 0
    last_successful_run: datetime | None = None
    next_due_at: datetime | None = None
