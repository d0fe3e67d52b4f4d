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
    """Its number."""
    name: str
    """Its name."""
    priority: int = 0
    """From 0 to 31; groups with a higher one go first."""
    max_active_jobs: int | None = None
    """How many of its runs may be under way at once; None: no limit."""
    enabled: bool = True
    """Whether anything of it is let through the gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Which train runs when, with what input and how often it may fail."""

    id: int
    """Its number."""
    external_id: str
    """The name you gave it."""
    train: str
    """The name of the train it runs."""
    group: str
    """The name of its group."""
    schedule: str | None = None
    """When it runs, in words."""
    schedule_type: ScheduleType
    """What kind of schedule that is."""
    enabled: bool = True
    """Whether it fires."""
    priority: int = 0
    """From 0 to 31, within its group."""
    max_retries: int = 3
    """How many runs it gets before it is given up."""
    timeout: timedelta | None = None
    """How long a run may take; None: as the settings say."""
    depends_on: str | None = None
    """The external id of the manifest after whose success it runs."""
    input: Any = None
    """What the train is run with."""
    failure_count: int = 0
    """How many of its runs have failed in a row."""
    last_successful_run: datetime | None = None
    """When it last succeeded."""
    next_due_at: datetime | None = None
    """When somebody looks at it next; None while it is queued or runs, and when nothing is due."""
    retired_at: datetime | None = None
    """Since when it is retired: it does not fire, and its history is kept; None: it is in use."""
