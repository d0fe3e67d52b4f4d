"""Numbers for the demo report, from its records. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from statistics import median

from trax import DeadLetter, Metadata, WorkQueueEntry
from trax.records.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Runs and entries since a moment, the number still queued, and the open dead letters."""

    since: datetime
    until: datetime
    runs: Sequence[Metadata]
    entries: Sequence[WorkQueueEntry]
    waiting: int
    letters: Sequence[DeadLetter]

    def runs_in(self, group: str) -> list[Metadata]:
        return [run for run in self.runs if run.group == group]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """Counts for one train. Times are medians in seconds; None if nothing was measured."""

    train: str
    runs: int
    succeeded: int
    failed: int
    put_back: int
    retried: int
    waited: float | None
    took: float | None


def by_train(records: Records) -> list[TrainReport]:
    """One report per train, in order of the first run."""
    queued_at = {entry.external_id: entry.created_at for entry in records.entries}
    runs: dict[str, list[Metadata]] = defaultdict(list)
    for run in sorted(records.runs, key=lambda run: run.id):
        runs[run.train].append(run)
    return [_report(train, own, queued_at) for train, own in runs.items()]


def most_at_once(runs: Sequence[Metadata]) -> int:
    """The highest number of these runs at the same time; an end counts before a start at the same moment."""
    started = [(run.started_at, 1) for run in runs if run.started_at]
    ended = [(run.ended_at, -1) for run in runs if run.started_at and run.ended_at]
    return max(accumulate(change for _, change in sorted([*started, *ended])), default=0)


def count_scheduled(records: Records, manifest: str, start: datetime, end: datetime) -> int:
    return sum(entry.manifest == manifest and start <= entry.created_at < end for entry in records.entries)


def _report(train: str, runs: Sequence[Metadata], queued_at: Mapping[str, datetime]) -> TrainReport:
    states = [run.state for run in runs]
    return TrainReport(
        train=train,
        runs=len(runs),
        succeeded=states.count(State.COMPLETED),
        failed=states.count(State.FAILED),
        put_back=states.count(State.CANCELLED),
        retried=sum(run.attempt > 1 for run in runs),
        waited=_median(_waits(runs, queued_at)),
        took=_median(_lengths(runs)),
    )


def _waits(runs: Sequence[Metadata], queued_at: Mapping[str, datetime]) -> list[float]:
    """Seconds from enqueue to the first start; delays between attempts do not count."""
    first = {run.external_id: run.started_at for run in reversed(runs) if run.attempt == 1 and run.started_at}
    return [(first[name] - queued_at[name]).total_seconds() for name in first if name in queued_at]


def _lengths(runs: Sequence[Metadata]) -> list[float]:
    return [
        (run.ended_at - run.started_at).total_seconds() for run in runs if run.started_at and run.ended_at
    ]


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None
