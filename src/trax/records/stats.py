"""Statistics of the dashboard's home page and of groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.count import Count
from trax.records.manifest import ManifestGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The numbers at the top. `exact` is False if too many runs ended recently to count them all."""

    now: datetime
    executions_today: int
    success_rate: float | None
    """Completed runs divided by completed and failed runs, today; None: no such runs."""
    running: Count
    queue_depth: Count
    dead_letters: Count
    active_manifests: Count
    registered_trains: int
    completed_per_minute: float
    failed_per_minute: float
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """The runs that ended in one minute or hour."""

    at: datetime
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Throughput:
    """The last 60 minutes or 24 hours, oldest first, without gaps."""

    points: tuple[Point, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDuration:
    """How long completed runs of a train took: the average of all, and the 95th percentile of the latest.

    `sampled_runs` is the number of runs used for the percentile; `exact` says whether those were all runs.
    """

    train: str
    runs: int
    average_seconds: float
    p95_seconds: float | None
    sampled_runs: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class FailingTrain:
    """A train with failed runs."""

    train: str
    failed: int
    completed: int

    @property
    def failure_rate(self) -> float:
        return self.failed / (self.failed + self.completed)


@dataclass(frozen=True, slots=True)
class BlockSeries:
    """How many runs of one train ended in each block."""

    train: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Seven days in blocks of six hours: the busiest trains, and all other trains together."""

    starts: tuple[datetime, ...]
    series: tuple[BlockSeries, ...]
    other: tuple[int, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Runs by state: pending and in progress now, and ended in the last seven days."""

    pending: Count
    in_progress: Count
    completed: int
    failed: int
    cancelled: int
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All statistics of the home page at one time; None: not requested."""

    home: Home
    throughput: Throughput | None
    states: States | None
    durations: tuple[TrainDuration, ...] | None
    failing: tuple[FailingTrain, ...] | None
    blocks: Blocks | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A group with its number of manifests and the totals of its runs since counting began."""

    group: ManifestGroup
    manifests: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    last_run_at: datetime | None = None

    @property
    def executions(self) -> int:
        return self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class GroupGraph:
    """Dependencies between groups: an edge goes from the parent's group to the dependent's group.

    `exact` is False if there are more dependents than were read.
    """

    groups: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    exact: bool = True


def success_rate(completed: int, failed: int) -> float | None:
    """Completed runs divided by completed and failed ones; cancelled runs do not count."""
    total = completed + failed
    return completed / total if total else None
