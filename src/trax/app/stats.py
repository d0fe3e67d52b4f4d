"""`app.stats`: numbers and charts of the dashboard, computed from totals of ended runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from trax.app.lists import parse_choice
from trax.bounds import duration_within_bounds
from trax.errors import NotFound
from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.stats import (
    SPAN_LENGTH,
    Blocks,
    BlockSeries,
    FailingTrain,
    Home,
    Overview,
    Point,
    RunTotals,
    Span,
    States,
    Throughput,
    TrainDuration,
    span_start,
    success_rate,
)
from trax.schedule.validate import FLAG, PAGE, Requirement, check_names
from trax.server.loops import NO_SCHEDULER_AFTER, totals_updater, update_totals
from trax.store import dialect, groups, listing, stats, workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from trax.records.stats import GroupGraph, GroupStats
    from trax.store import Connection, Store
    from trax.store.stats import EndedTotals
    from trax.worker.app_context import AppContext


POINTS: Final = {Span.MINUTE: 60, Span.HOUR: 24}

BLOCK: Final = timedelta(hours=6)

BLOCKS: Final = 28

BUSIEST: Final = 3

PERCENTILE: Final = 0.95


T = TypeVar("T")

WEEK: Final = timedelta(days=7)

RATE_MINUTES: Final = 5

WITHOUT: Final = Requirement(
    "a list of names",
    lambda value: (
        isinstance(value, list | tuple | set | frozenset)
        and all(isinstance(each, str) for each in cast("Iterable[Any]", value))
    ),
)


class Stats:
    """Numbers for pages and charts. Administrative trains are excluded unless `admin` is set.

    The cost of every read is bounded, however long the history is: see `trax.store.stats`. If that makes
    a number inexact, `exact` is False.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context

    async def home(self, *, admin: bool = False) -> Home:
        """The key numbers of the home page; today means since midnight UTC."""
        return await self._read(_home, self._context.trains.names, admin=admin)

    async def throughput(
        self, by: Literal["minute", "hour"] | Span = "minute", *, admin: bool = False
    ) -> Throughput:
        """Ended runs per minute of the last hour, or per hour of the last day."""
        return await self._read(_throughput, parse_choice(Span, by) or Span.MINUTE, admin=admin)

    async def durations(self, *, limit: int = 10, admin: bool = False) -> tuple[TrainDuration, ...]:
        """Durations of completed runs of the last seven days, slowest trains first."""
        return await self._read(_durations, PAGE("limit", limit), admin=admin)

    async def top_failures(self, *, limit: int = 10, admin: bool = False) -> tuple[FailingTrain, ...]:
        """The trains with the most failures in the last seven days."""
        return await self._read(_top_failures, PAGE("limit", limit), admin=admin)

    async def blocks(self, *, admin: bool = False) -> Blocks:
        """Ended runs of seven days in blocks of six hours: the three busiest trains, and all others."""
        return await self._read(_blocks, admin=admin)

    async def states(self, *, admin: bool = False) -> States:
        """Number of runs by state: active ones, and those that ended in the last seven days."""
        return await self._read(_states, admin=admin)

    async def overview(
        self,
        by: Literal["minute", "hour"] | Span = "minute",
        *,
        limit: int = 10,
        without: Collection[str] = (),
        admin: bool = False,
    ) -> Overview:
        """All of the above in one transaction, except the parts named in `without`."""
        span = parse_choice(Span, by) or Span.MINUTE
        names, excluded = self._context.trains.names, WITHOUT("without", without)
        return await self._read(_overview, names, span, PAGE("limit", limit), excluded, admin=admin)

    async def groups(
        self, *, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[GroupStats]:
        """Groups with their counters, ordered by name, or one group."""
        check_names(name=name, after=after)
        return await self._read(_groups, name, after, PAGE("limit", limit), admin=True)

    async def graph(self, group: str | None = None) -> GroupGraph:
        """Dependencies between groups: all, or those of one group."""
        check_names(group=group)
        store = await self._context.store.open()
        return await store.ask(groups.load_graph, group)

    async def keep_up(self) -> bool:
        """Add ended runs to the totals, at most an hour of them; True if there are more.

        Schedulers do this themselves. A dashboard process may do it while no scheduler runs.
        """
        return await update_totals(await self._context.store.open())

    @asynccontextmanager
    async def keep_up_in_background(self) -> AsyncGenerator[None]:
        """Call `keep_up` during the block, whenever the schedulers are late with it."""
        loop = totals_updater(await self._context.store.open(), min_age=NO_SCHEDULER_AFTER)
        keeping = asyncio.create_task(loop.run(), name=f"trax {loop.name}")
        try:
            yield
        finally:
            loop.stop()
            await keeping

    async def _read(self, read: Callable[..., T], *arguments: Any, admin: bool) -> T:
        FLAG("admin", admin)
        store = await self._context.store.open()
        return await store.ask(_read_snapshot, store, read, *arguments, admin=admin)


def _read_snapshot(
    connection: Connection, store: Store, read: Callable[..., T], *arguments: Any, admin: bool
) -> T:
    dialect.use_one_snapshot(connection)
    now = store.now(connection)
    return read(stats.read_totals(connection, now=now, admin=admin), now, *arguments)


def _home(endings: EndedTotals, now: datetime, registered: list[str]) -> Home:
    connection = endings.connection
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    today = sum(endings.by_train(midnight).values(), start=RunTotals())
    completed, failed = _rates(endings, now)
    known = {*registered, *(name for worker in workers.load_list(connection) for name in worker.trains)}
    return Home(
        now=now,
        executions_today=today.total,
        success_rate=success_rate(today.completed, today.failed),
        running=listing.count_running(connection),
        queue_depth=listing.count_queued(connection),
        dead_letters=listing.count_dead_letters(connection),
        active_manifests=listing.count_active_manifests(connection),
        registered_trains=sum(endings.admin or not name.startswith(ADMINISTRATIVE_PREFIX) for name in known),
        completed_per_minute=completed,
        failed_per_minute=failed,
        exact=endings.exact,
    )


def _rates(endings: EndedTotals, now: datetime) -> tuple[float, float]:
    """Completed and failed per minute of the last minutes; of the last totals if there are too many runs."""
    until = span_start(now, Span.MINUTE) + SPAN_LENGTH[Span.MINUTE]
    if not endings.exact and endings.totals_end is not None:
        until = endings.totals_end
    since = until - RATE_MINUTES * SPAN_LENGTH[Span.MINUTE]
    within = {at: sums for at, sums in endings.by_span(Span.MINUTE, since).items() if at < until}
    return rates_per_minute(within, minutes=RATE_MINUTES)


def _throughput(endings: EndedTotals, now: datetime, span: Span) -> Throughput:
    at = point_starts(now, span)
    return Throughput(points(at, endings.by_span(span, at[0])), endings.exact)


def _durations(endings: EndedTotals, now: datetime, limit: int) -> tuple[TrainDuration, ...]:
    by_train = endings.by_train(now - WEEK)
    trains = slowest_trains(by_train, most=limit)
    latest = stats.latest_durations(endings.connection, trains, since=now - WEEK)
    return tuple(train_duration(train, by_train[train], latest.get(train, [])) for train in trains)


def _top_failures(endings: EndedTotals, now: datetime, limit: int) -> tuple[FailingTrain, ...]:
    return top_failing_trains(endings.by_train(now - WEEK), most=limit)


def _blocks(endings: EndedTotals, now: datetime) -> Blocks:
    at = block_starts(now)
    trains = busiest_trains(endings.by_train(at[0]))
    of_each = zip(trains, endings.by_hour_of(trains, at[0]), strict=True)
    series = tuple(BlockSeries(train, count_by_block(at, ended)) for train, ended in of_each)
    all_hours = {moment: sums.total for moment, sums in endings.by_span(Span.HOUR, at[0]).items()}
    rest = count_of_other_trains(count_by_block(at, all_hours), series)
    return Blocks(tuple(at), series, rest, endings.exact)


def _states(endings: EndedTotals, now: datetime) -> States:
    ended = sum(endings.by_train(now - WEEK).values(), start=RunTotals())
    return States(
        pending=listing.count_pending(endings.connection),
        in_progress=listing.count_running(endings.connection),
        completed=ended.completed,
        failed=ended.failed,
        cancelled=ended.cancelled,
        exact=endings.exact,
    )


def _overview(
    endings: EndedTotals,
    now: datetime,
    registered: list[str],
    span: Span,
    limit: int,
    without: Collection[str],
) -> Overview:
    def read_unless_excluded(name: str, read: Callable[..., T], *arguments: Any) -> T | None:
        return None if name in without else read(endings, now, *arguments)

    return Overview(
        home=_home(endings, now, registered),
        throughput=read_unless_excluded("throughput", _throughput, span),
        states=read_unless_excluded("states", _states),
        durations=read_unless_excluded("durations", _durations, limit),
        failing=read_unless_excluded("failing", _top_failures, limit),
        blocks=read_unless_excluded("blocks", _blocks),
    )


def _groups(
    endings: EndedTotals, _now: datetime, name: str | None, after: str | None, limit: int
) -> list[GroupStats]:
    connection = endings.connection
    if name is None:
        found = groups.load_list(connection, after=after, limit=limit)
    else:
        group = groups.get(connection, name)
        if group is None:
            raise NotFound(f"there is no group {name!r}")
        found = [group]
    return groups.load_stats(connection, found, endings.latest)


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
        average=duration_within_bounds(totals.seconds / totals.completed),
        p95=duration_within_bounds(latest[ceil(PERCENTILE * len(latest)) - 1]) if latest else None,
        sampled_runs=len(latest),
        exact=len(latest) >= totals.completed,
    )


def rates_per_minute(totals: Mapping[datetime, RunTotals], *, minutes: int) -> tuple[float, float]:
    """Completed and failed runs per minute."""
    total = sum(totals.values(), start=RunTotals())
    return total.completed / minutes, total.failed / minutes
