"""Manifests (which train runs when) and manifest groups (shared limits)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trax.records.states import ScheduleType


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """Manifests that share a limit and a priority."""

    id: int
    """Its id."""
    name: str
    """Its name."""
    priority: int = 0
    """From 0 to 31; groups with a higher priority go first."""
    max_active_jobs: int | None = None
    """The maximum number of its runs that are pending or in progress at once; None: no limit."""
    enabled: bool = True
    """Whether its entries are dispatched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Which train runs when, with which input, and how often it is retried."""

    id: int
    """Its id."""
    external_id: str
    """Its name in code."""
    train: str
    """The name of the train it runs."""
    group: str
    """The name of its group."""
    schedule: str | None = None
    """When it runs, in words."""
    schedule_type: ScheduleType
    """The type of its schedule."""
    enabled: bool = True
    """Whether its schedule is active."""
    priority: int = 0
    """From 0 to 31, within its group."""
    max_retries: int = 3
    """How many failed runs make a dead letter."""
    timeout: timedelta | None = None
    """How long a run may take; None: the setting `default_job_timeout`."""
    depends_on: str | None = None
    """The external id of its parent: it runs after each success of the parent."""
    input: Any = None
    """The input of its runs."""
    failure_count: int = 0
    """How many of its runs have failed in a row."""
    last_successful_run: datetime | None = None
    """When it last succeeded."""
    next_due_at: datetime | None = None
    """When the manager checks it next; None while it is queued or runs, and when nothing is due."""
    retired_at: datetime | None = None
    """When it was retired: it does not run any more, and its history is kept; None: it is in use."""
