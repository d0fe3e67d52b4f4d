"""`app.stats`: counts, success rates and durations of runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from trax.admin import overview
from trax.errors import NotFound
from trax.host.checks import PAGE, check_names
from trax.host.duties import NO_SCHEDULER_AFTER, totals_updater, update_totals
from trax.host.words import parse_choice
from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.stats import (
    Blocks,
    BlockSeries,
    Home,
    Overview,
    States,
    Throughput,
    success_rate,
)
from trax.records.tally import SPAN_LENGTH, RunTotals, Span, span_start
from trax.store import counting, dialect, group_stats, manifest_groups, stats, workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.records.stats import FailingTrain, GroupGraph, GroupStats, TrainDuration
    from trax.store import Connection, Store
    from trax.store.stats import EndedTotals

T = TypeVar("T")

WEEK: Final = timedelta(days=7)
RATE_MINUTES: Final = 5


class Stats:
    """Numbers for pages and charts. Administrative trains are excluded unless `admin` is set.

    The cost of every read is bounded, however long the history is: see `trax.store.tallies`. If that makes
    a number inexact, `exact` is False.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def home(self, *, admin: bool = False) -> Home:
        """The key numbers of the home page; today means since midnight UTC."""
        return await self._read(_home, self._parts.trains.names, admin=admin)

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
        names = self._parts.trains.names
        return await self._read(_overview, names, span, PAGE("limit", limit), without, admin=admin)

    async def groups(
        self, *, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[GroupStats]:
        """Groups with their counters, ordered by name, or one group."""
        check_names(name=name, after=after)
        return await self._read(_groups, name, after, PAGE("limit", limit), admin=True)

    async def graph(self, group: str | None = None) -> GroupGraph:
        """Dependencies between groups: all, or those of one group."""
        check_names(group=group)
        store = await self._parts.store.open()
        return await store.ask(group_stats.load_graph, group)

    async def keep_up(self) -> bool:
        """Add ended runs to the totals, at most an hour of them; True if there are more.

        Schedulers do this themselves. A dashboard process may do it while no scheduler runs.
        """
        return await update_totals(await self._parts.store.open())

    @asynccontextmanager
    async def keep_up_in_background(self) -> AsyncGenerator[None]:
        """Call `keep_up` during the block, whenever the schedulers are late with it."""
        loop = totals_updater(await self._parts.store.open(), min_age=NO_SCHEDULER_AFTER)
        keeping = asyncio.create_task(loop.run(), name=f"trax {loop.name}")
        try:
            yield
        finally:
            loop.stop()
            await keeping

    async def _read(self, read: Callable[..., T], *arguments: Any, admin: bool) -> T:
        store = await self._parts.store.open()
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
        running=counting.count_running(connection),
        queue_depth=counting.count_queued(connection),
        dead_letters=counting.count_dead_letters(connection),
        active_manifests=counting.count_active_manifests(connection),
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
    return overview.rates_per_minute(within, minutes=RATE_MINUTES)


def _throughput(endings: EndedTotals, now: datetime, span: Span) -> Throughput:
    at = overview.point_starts(now, span)
    return Throughput(overview.points(at, endings.by_span(span, at[0])), endings.exact)


def _durations(endings: EndedTotals, now: datetime, limit: int) -> tuple[TrainDuration, ...]:
    by_train = endings.by_train(now - WEEK)
    trains = overview.slowest_trains(by_train, most=limit)
    latest = stats.latest_durations(endings.connection, trains, since=now - WEEK)
    return tuple(overview.train_duration(train, by_train[train], latest.get(train, [])) for train in trains)


def _top_failures(endings: EndedTotals, now: datetime, limit: int) -> tuple[FailingTrain, ...]:
    return overview.top_failing_trains(endings.by_train(now - WEEK), most=limit)


def _blocks(endings: EndedTotals, now: datetime) -> Blocks:
    at = overview.block_starts(now)
    trains = overview.busiest_trains(endings.by_train(at[0]))
    of_each = zip(trains, endings.by_hour_of(trains, at[0]), strict=True)
    series = tuple(BlockSeries(train, overview.count_by_block(at, ended)) for train, ended in of_each)
    all_hours = {moment: sums.total for moment, sums in endings.by_span(Span.HOUR, at[0]).items()}
    rest = overview.count_of_other_trains(overview.count_by_block(at, all_hours), series)
    return Blocks(tuple(at), series, rest, endings.exact)


def _states(endings: EndedTotals, now: datetime) -> States:
    ended = sum(endings.by_train(now - WEEK).values(), start=RunTotals())
    return States(
        pending=counting.count_pending(endings.connection),
        in_progress=counting.count_running(endings.connection),
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
        found = manifest_groups.load_list(connection, after=after, limit=limit)
    else:
        group = manifest_groups.get(connection, name)
        if group is None:
            raise NotFound(f"there is no group {name!r}")
        found = [group]
    return group_stats.load_stats(connection, found, endings.latest)
