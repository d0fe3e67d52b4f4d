"""Numbers for those who measure: how much waits where, and how quickly things go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.tally import Sums


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """What is ready to run in one group, or in none (""): to 10,000 at most, or less where groups are many.

    `oldest_at` is since when the one has been waiting that is next, of whichever priority it waits longest.
    """

    group: str
    ready: int
    oldest_at: datetime | None


@dataclass(frozen=True, slots=True)
class RecentRun:
    """How long one of the latest runs waited for a worker and took, as far as it has come."""

    train: str
    state: str
    pickup_seconds: float | None
    duration_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """One look at everything that is measured from the database."""

    now: datetime
    queues: tuple[GroupQueue, ...]
    recent: tuple[RecentRun, ...]
    ended: tuple[tuple[str, Sums], ...]
    """Trains, and what of each was added up since the last look, minute by minute."""
    tallied_to: datetime | None
