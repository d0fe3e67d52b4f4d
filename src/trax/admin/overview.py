"""Numbers and charts of the dashboard's home page, computed from totals of ended runs. No I/O."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

from trax.records.stats import BlockSeries, FailingTrain, Point, TrainDuration
from trax.records.tally import SPAN_LENGTH, RunTotals, Span, span_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

POINTS: Final = {Span.MINUTE: 60, Span.HOUR: 24}
BLOCK: Final = timedelta(hours=6)
BLOCKS: Final = 28
BUSIEST: Final = 3
PERCENTILE: Final = 0.95


def point_starts(now: datetime, span: Span) -> list[datetime]:
    """The start of each of the last 60 minutes or 24 hours, oldest first; the last one has not ended."""
    last = span_start(now, span)
    return [last - SPAN_LENGTH[span] * back for back in reversed(range(POINTS[span]))]


def block_starts(now: datetime) -> list[datetime]:
    """The start of each six-hour block of the last seven days; the last one has not ended."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    last = midnight + (now - midnight) // BLOCK * BLOCK
    return [last - BLOCK * back for back in reversed(range(BLOCKS))]


def points(starts: Sequence[datetime], totals: Mapping[datetime, RunTotals]) -> tuple[Point, ...]:
    """One point for each moment, also where nothing ended."""
    pairs = ((moment, totals.get(moment, RunTotals())) for moment in starts)
    return tuple(Point(moment, each.completed, each.failed, each.cancelled) for moment, each in pairs)


def count_by_block(starts: Sequence[datetime], ended: Mapping[datetime, int]) -> tuple[int, ...]:
    """How many runs ended in each block, summed from the hours."""
    counts = dict.fromkeys(starts, 0)
    for moment, number in ended.items():
        start = starts[0] + (moment - starts[0]) // BLOCK * BLOCK
        if start in counts:
            counts[start] += number
    return tuple(counts.values())


def busiest_trains(by_train: Mapping[str, RunTotals], *, most: int = BUSIEST) -> list[str]:
    """The trains with the most ended runs."""
    ranked = sorted(by_train, key=lambda train: (-by_train[train].total, train))
    return [train for train in ranked if by_train[train].total][:most]


def count_of_other_trains(total: Sequence[int], series: Iterable[BlockSeries]) -> tuple[int, ...]:
    """The counts of all trains that have no series of their own."""
    counts = [each.counts for each in series]
    return tuple(all_runs - sum(parts) for all_runs, *parts in zip(total, *counts, strict=True))


def top_failing_trains(by_train: Mapping[str, RunTotals], *, most: int) -> tuple[FailingTrain, ...]:
    """The trains with the most failed runs."""
    ranked = sorted(
        (FailingTrain(train, each.failed, each.completed) for train, each in by_train.items() if each.failed),
        key=lambda each: (-each.failed, each.train),
    )
    return tuple(ranked[:most])


def slowest_trains(by_train: Mapping[str, RunTotals], *, most: int) -> list[str]:
    """The trains with the longest average duration of completed runs."""
    averages = {train: each.seconds / each.completed for train, each in by_train.items() if each.completed}
    return sorted(averages, key=lambda train: (-averages[train], train))[:most]


def train_duration(train: str, totals: RunTotals, latest: Sequence[float]) -> TrainDuration:
    """Average and 95th percentile; `latest` are the durations of the latest runs, shortest first."""
    return TrainDuration(
        train=train,
        runs=totals.completed,
        average_seconds=totals.seconds / totals.completed,
        p95_seconds=latest[ceil(PERCENTILE * len(latest)) - 1] if latest else None,
        sampled_runs=len(latest),
        exact=len(latest) >= totals.completed,
    )


def rates_per_minute(totals: Mapping[datetime, RunTotals], *, minutes: int) -> tuple[float, float]:
    """Completed and failed runs per minute."""
    total = sum(totals.values(), start=RunTotals())
    return total.completed / minutes, total.failed / minutes
