"""The numbers and charts people look at first. No I/O: give it what ended, get what is shown."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Final

from trax.records.stats import BlockSeries, FailingTrain, Point, TrainDuration
from trax.records.tally import LENGTH, Span, Sums, begun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

POINTS: Final = {Span.MINUTE: 60, Span.HOUR: 24}
BLOCK: Final = timedelta(hours=6)
BLOCKS: Final = 28
BUSIEST: Final = 3
PERCENTILE: Final = 0.95


def starts(now: datetime, span: Span) -> list[datetime]:
    """When the last sixty minutes or twenty-four hours began, oldest first; the last one is under way."""
    last = begun(now, span)
    return [last - LENGTH[span] * back for back in reversed(range(POINTS[span]))]


def block_starts(now: datetime) -> list[datetime]:
    """When the blocks of the last seven days began; the last one is under way."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    last = midnight + (now - midnight) // BLOCK * BLOCK
    return [last - BLOCK * back for back in reversed(range(BLOCKS))]


def points(at: Sequence[datetime], sums: Mapping[datetime, Sums]) -> tuple[Point, ...]:
    """A point for each moment, also where nothing ended."""
    found = ((moment, sums.get(moment, Sums())) for moment in at)
    return tuple(Point(moment, one.completed, one.failed, one.cancelled) for moment, one in found)


def in_blocks(at: Sequence[datetime], ended: Mapping[datetime, int]) -> tuple[int, ...]:
    """How many runs ended in each block, from how many did in each hour."""
    counts = dict.fromkeys(at, 0)
    for moment, number in ended.items():
        start = at[0] + (moment - at[0]) // BLOCK * BLOCK
        if start in counts:
            counts[start] += number
    return tuple(counts.values())


def busiest(by_train: Mapping[str, Sums], *, most: int = BUSIEST) -> list[str]:
    """The trains of which most has ended."""
    ranked = sorted(by_train, key=lambda train: (-by_train[train].ended, train))
    return [train for train in ranked if by_train[train].ended][:most]


def others(total: Sequence[int], series: Iterable[BlockSeries]) -> tuple[int, ...]:
    """What the trains that are not shown by themselves come to."""
    shown = [one.counts for one in series]
    return tuple(all_of_it - sum(each) for all_of_it, *each in zip(total, *shown, strict=True))


def failing(by_train: Mapping[str, Sums], *, most: int) -> tuple[FailingTrain, ...]:
    """The trains that failed most often."""
    ranked = sorted(
        (FailingTrain(train, one.failed, one.completed) for train, one in by_train.items() if one.failed),
        key=lambda one: (-one.failed, one.train),
    )
    return tuple(ranked[:most])


def slowest(by_train: Mapping[str, Sums], *, most: int) -> list[str]:
    """The trains whose completed runs took longest on average."""
    averages = {train: one.seconds / one.completed for train, one in by_train.items() if one.completed}
    return sorted(averages, key=lambda train: (-averages[train], train))[:most]


def duration(train: str, sums: Sums, latest: Sequence[float]) -> TrainDuration:
    """How long the runs of a train took; `latest` are the durations of some of them, in order."""
    return TrainDuration(
        train=train,
        runs=sums.completed,
        average_seconds=sums.seconds / sums.completed,
        p95_seconds=latest[ceil(PERCENTILE * len(latest)) - 1] if latest else None,
        sampled_runs=len(latest),
        exact=len(latest) >= sums.completed,
    )


def per_minute(sums: Mapping[datetime, Sums], *, minutes: int) -> tuple[float, float]:
    """Completed and failed runs a minute."""
    total = sum(sums.values(), start=Sums())
    return total.completed / minutes, total.failed / minutes
