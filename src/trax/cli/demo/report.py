"""What happened, counted from the records. No I/O: give it records, get numbers."""

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
    """What was written since a moment, what still waits in the queue, and who waits for a person."""

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
    """How the runs of one train went. The times are medians in seconds, None where nothing was measured."""

    train: str
    runs: int
    succeeded: int
    failed: int
    put_back: int
    retried: int
    waited: float | None
    took: float | None


def by_train(records: Records) -> list[TrainReport]:
    """The trains in the order in which they first ran."""
    asked_at = {entry.external_id: entry.created_at for entry in records.entries}
    runs: dict[str, list[Metadata]] = defaultdict(list)
    for run in sorted(records.runs, key=lambda run: run.id):
        runs[run.train].append(run)
    return [_report(train, own, asked_at) for train, own in runs.items()]


def most_at_once(runs: Sequence[Metadata]) -> int:
    """How many of these ran at the same time at most; one that ended as another began had made room."""
    begun = [(run.started_at, 1) for run in runs if run.started_at]
    ended = [(run.ended_at, -1) for run in runs if run.started_at and run.ended_at]
    return max(accumulate(change for _, change in sorted([*begun, *ended])), default=0)


def scheduled_between(records: Records, manifest: str, start: datetime, end: datetime) -> int:
    return sum(entry.manifest == manifest and start <= entry.created_at < end for entry in records.entries)


def _report(train: str, runs: Sequence[Metadata], asked_at: Mapping[str, datetime]) -> TrainReport:
    states = [run.state for run in runs]
    return TrainReport(
        train=train,
        runs=len(runs),
        succeeded=states.count(State.COMPLETED),
        failed=states.count(State.FAILED),
        put_back=states.count(State.CANCELLED),
        retried=sum(run.attempt > 1 for run in runs),
        waited=_median(_waits(runs, asked_at)),
        took=_median(_lengths(runs)),
    )


def _waits(runs: Sequence[Metadata], asked_at: Mapping[str, datetime]) -> list[float]:
    """From being asked for to the first start; what waits between two attempts is not counted."""
    first = {run.external_id: run.started_at for run in reversed(runs) if run.attempt == 1 and run.started_at}
    return [(first[name] - asked_at[name]).total_seconds() for name in first if name in asked_at]


def _lengths(runs: Sequence[Metadata]) -> list[float]:
    return [
        (run.ended_at - run.started_at).total_seconds() for run in runs if run.started_at and run.ended_at
    ]


def _median(seconds: Sequence[float]) -> float | None:
    return median(seconds) if seconds else None
