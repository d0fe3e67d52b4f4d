"""What people look at first: how much ran, how well, how quickly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trax.records.count import Count
from trax.records.manifest import ManifestGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The numbers at the top. `exact` is False while more has ended lately than was worth counting."""

    now: datetime
    executions_today: int
    success_rate: float | None
    """Completed among completed and failed, today; None without any."""
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
    """What ended in one minute or hour."""

    at: datetime
    completed: int = 0
    failed: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Sixty minutes or twenty-four hours, oldest first, without gaps."""

    points: tuple[Point, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainDuration:
    """How long the completed runs of a train took: on average all of them, at the 95th percentile the latest.

    `sampled_runs` is how many of the latest the percentile was taken from; `exact` says whether that was all.
    """

    train: str
    runs: int
    average_seconds: float
    p95_seconds: float | None
    sampled_runs: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class FailingTrain:
    """A train whose runs fail, and how many of its runs do."""

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
    """Seven days in blocks of six hours: the busiest trains, and all others together."""

    starts: tuple[datetime, ...]
    series: tuple[BlockSeries, ...]
    other: tuple[int, ...]
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Runs by state: those under way now, and those that ended within seven days."""

    pending: Count
    in_progress: Count
    completed: int
    failed: int
    cancelled: int
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All of the above, of one moment; None for what was not asked for."""

    home: Home
    throughput: Throughput | None
    states: States | None
    durations: tuple[TrainDuration, ...] | None
    failing: tuple[FailingTrain, ...] | None
    blocks: Blocks | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """A group and what its manifests and runs have come to, since counting began."""

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
    """Groups, and which wait for which: an edge leads from the parent's group to the dependent's.

    `exact` is False when there are more dependents than were looked at.
    """

    groups: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    exact: bool = True


def success_rate(completed: int, failed: int) -> float | None:
    """The share of what completed; what was cancelled says nothing about success."""
    judged = completed + failed
    return completed / judged if judged else None
