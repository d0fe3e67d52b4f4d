"""Numbers for the dashboard, the metrics and the live view, among them totals of ended runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from trax.clock import TextDuration
from trax.records.listing import Count
from trax.records.manifest import ManifestGroup
from trax.records.status import Status


class Span(StrEnum):
    """The length of time that one total covers."""

    MINUTE = "minute"
    HOUR = "hour"


SPAN_LENGTH: Final = {Span.MINUTE: timedelta(minutes=1), Span.HOUR: timedelta(hours=1)}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The numbers of ended runs by result; `seconds` is the total duration of the completed ones."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> int:
        return self.completed + self.failed + self.cancelled

    def __add__(self, other: RunTotals) -> RunTotals:
        return RunTotals(
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.seconds + other.seconds,
        )


def span_start(moment: datetime, span: Span) -> datetime:
    """The start of the minute or hour of this moment."""
    minute = 0 if span is Span.HOUR else moment.minute
    return moment.replace(minute=minute, second=0, microsecond=0)


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
    average: TextDuration
    p95: TextDuration | None
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
    totals_until: datetime | None


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
