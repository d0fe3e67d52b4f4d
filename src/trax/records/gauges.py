"""Gauges for metrics: queue lengths per group, and waits and durations of recent runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.tally import RunTotals


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """The number of ready entries in one group, or in none (""): at most 10,000, less with many groups.

    `oldest_at` is since when the oldest of the next entries of each priority has been waiting.
    """

    group: str
    ready: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class RecentRun:
    """How long one of the latest runs waited for a worker, and how long it took; None: not yet known."""

    train: str
    state: str
    pickup_seconds: float | None
    duration_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """All gauges read from the database at one time."""

    now: datetime
    queues: tuple[GroupQueue, ...]
    recent: tuple[RecentRun, ...]
    ended: tuple[tuple[str, RunTotals], ...]
    """The totals of each train added since the last read, minute by minute."""
    tallied_to: datetime | None
