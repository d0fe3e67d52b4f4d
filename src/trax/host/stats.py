"""`app.stats`: how much runs, how well, how quickly."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from trax.admin import overview
from trax.errors import NotFound
from trax.host.checks import PAGE, check_names
from trax.host.duties import LEFT_BY_SCHEDULERS, add_up, tallier
from trax.host.words import checked_word
from trax.records.metadata import ADMINISTRATIVE
from trax.records.stats import (
    Blocks,
    BlockSeries,
    Home,
    Overview,
    States,
    Throughput,
    success_rate,
)
from trax.records.tally import LENGTH, Span, Sums, begun
from trax.store import counting, dialect, group_stats, manifest_groups, stats, workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.records.stats import FailingTrain, GroupGraph, GroupStats, TrainDuration
    from trax.store import Connection, Store
    from trax.store.stats import Endings

T = TypeVar("T")

WEEK: Final = timedelta(days=7)
RATE_MINUTES: Final = 5


class Stats:
    """Numbers for people and charts. Administrative trains are left out of all of it, unless `admin` is set.

    Every read is bounded, however long history is: see `trax.store.tallies`. Where that makes a number
    inexact, the answer says so.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def home(self, *, admin: bool = False) -> Home:
        """The numbers at the top: today means since midnight UTC."""
        return await self._ask(_home, self._parts.trains.names, admin=admin)

    async def throughput(
        self, by: Literal["minute", "hour"] | Span = "minute", *, admin: bool = False
    ) -> Throughput:
        """What ended in each minute of the last hour, or in each hour of the last day."""
        return await self._ask(_throughput, checked_word(Span, by) or Span.MINUTE, admin=admin)

    async def durations(self, *, limit: int = 10, admin: bool = False) -> tuple[TrainDuration, ...]:
        """How long completed runs took within seven days, the slowest trains first."""
        return await self._ask(_durations, PAGE("limit", limit), admin=admin)

    async def failing(self, *, limit: int = 10, admin: bool = False) -> tuple[FailingTrain, ...]:
        """Which trains failed most often within seven days."""
        return await self._ask(_failing, PAGE("limit", limit), admin=admin)

    async def blocks(self, *, admin: bool = False) -> Blocks:
        """Seven days in blocks of six hours: the three busiest trains, and the others together."""
        return await self._ask(_blocks, admin=admin)

    async def states(self, *, admin: bool = False) -> States:
        """Runs by state: those under way, and those that ended within seven days."""
        return await self._ask(_states, admin=admin)

    async def overview(
        self,
        by: Literal["minute", "hour"] | Span = "minute",
        *,
        limit: int = 10,
        without: Collection[str] = (),
        admin: bool = False,
    ) -> Overview:
        """Everything above in one question, of one moment, `without` the parts that are named."""
        span = checked_word(Span, by) or Span.MINUTE
        names = self._parts.trains.names
        return await self._ask(_overview, names, span, PAGE("limit", limit), without, admin=admin)

    async def groups(
        self, *, name: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[GroupStats]:
        """Groups with their counters, in the order of their names, or one of them."""
        check_names(name=name, after=after)
        return await self._ask(_groups, name, after, PAGE("limit", limit), admin=True)

    async def graph(self, group: str | None = None) -> GroupGraph:
        """Which groups wait for which: all of them, or those next to one."""
        check_names(group=group)
        store = await self._parts.store.opened()
        return await store.ask(group_stats.graph, group)

    async def keep_up(self) -> bool:
        """Add up the next of what has ended, an hour of it at most; True when there is more.

        Servers that schedule do so by themselves. A process that only looks may help, where none runs.
        """
        return await add_up(await self._parts.store.opened())

    @asynccontextmanager
    async def kept_up(self) -> AsyncGenerator[None]:
        """While the block lasts, do so whenever something is left longer than a scheduler would leave it."""
        loop = tallier(await self._parts.store.opened(), left_for=LEFT_BY_SCHEDULERS)
        keeping = asyncio.create_task(loop.run(), name=f"trax {loop.name}")
        try:
            yield
        finally:
            loop.stop()
            await keeping

    async def _ask(self, question: Callable[..., T], *given: Any, admin: bool) -> T:
        store = await self._parts.store.opened()
        return await store.ask(_asked, store, question, *given, admin=admin)


def _asked(connection: Connection, store: Store, question: Callable[..., T], *given: Any, admin: bool) -> T:
    dialect.see_one_moment(connection)
    now = store.now(connection)
    return question(stats.read(connection, now=now, admin=admin), now, *given)


def _home(endings: Endings, now: datetime, registered: list[str]) -> Home:
    connection = endings.connection
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    today = sum(endings.by_train(midnight).values(), start=Sums())
    completed, failed = _rates(endings, now)
    known = {*registered, *(name for one in workers.listed(connection) for name in one.trains)}
    return Home(
        now=now,
        executions_today=today.ended,
        success_rate=success_rate(today.completed, today.failed),
        running=counting.running(connection),
        queue_depth=counting.queued(connection),
        dead_letters=counting.dead_letters(connection),
        active_manifests=counting.active_manifests(connection),
        registered_trains=sum(endings.admin or not name.startswith(ADMINISTRATIVE) for name in known),
        completed_per_minute=completed,
        failed_per_minute=failed,
        exact=endings.exact,
    )


def _rates(endings: Endings, now: datetime) -> tuple[float, float]:
    """Of the last minutes with the one under way; while too much ends to be read, of the last added up."""
    until = begun(now, Span.MINUTE) + LENGTH[Span.MINUTE]
    if not endings.exact and endings.counted_to is not None:
        until = endings.counted_to
    since = until - RATE_MINUTES * LENGTH[Span.MINUTE]
    within = {at: one for at, one in endings.by_span(Span.MINUTE, since).items() if at < until}
    return overview.per_minute(within, minutes=RATE_MINUTES)


def _throughput(endings: Endings, now: datetime, span: Span) -> Throughput:
    at = overview.starts(now, span)
    return Throughput(overview.points(at, endings.by_span(span, at[0])), endings.exact)


def _durations(endings: Endings, now: datetime, limit: int) -> tuple[TrainDuration, ...]:
    by_train = endings.by_train(now - WEEK)
    trains = overview.slowest(by_train, most=limit)
    latest = stats.latest_durations(endings.connection, trains, since=now - WEEK)
    return tuple(overview.duration(train, by_train[train], latest.get(train, [])) for train in trains)


def _failing(endings: Endings, now: datetime, limit: int) -> tuple[FailingTrain, ...]:
    return overview.failing(endings.by_train(now - WEEK), most=limit)


def _blocks(endings: Endings, now: datetime) -> Blocks:
    at = overview.block_starts(now)
    trains = overview.busiest(endings.by_train(at[0]))
    of_each = zip(trains, endings.by_hour_of(trains, at[0]), strict=True)
    series = tuple(BlockSeries(train, overview.in_blocks(at, ended)) for train, ended in of_each)
    all_hours = {moment: sums.ended for moment, sums in endings.by_span(Span.HOUR, at[0]).items()}
    rest = overview.others(overview.in_blocks(at, all_hours), series)
    return Blocks(tuple(at), series, rest, endings.exact)


def _states(endings: Endings, now: datetime) -> States:
    ended = sum(endings.by_train(now - WEEK).values(), start=Sums())
    return States(
        pending=counting.pending(endings.connection),
        in_progress=counting.running(endings.connection),
        completed=ended.completed,
        failed=ended.failed,
        cancelled=ended.cancelled,
        exact=endings.exact,
    )


def _overview(
    endings: Endings, now: datetime, registered: list[str], span: Span, limit: int, without: Collection[str]
) -> Overview:
    def unless_without(name: str, question: Callable[..., T], *given: Any) -> T | None:
        return None if name in without else question(endings, now, *given)

    return Overview(
        home=_home(endings, now, registered),
        throughput=unless_without("throughput", _throughput, span),
        states=unless_without("states", _states),
        durations=unless_without("durations", _durations, limit),
        failing=unless_without("failing", _failing, limit),
        blocks=unless_without("blocks", _blocks),
    )


def _groups(
    endings: Endings, _now: datetime, name: str | None, after: str | None, limit: int
) -> list[GroupStats]:
    connection = endings.connection
    if name is None:
        found = manifest_groups.listed(connection, after=after, limit=limit)
    else:
        group = manifest_groups.get(connection, name)
        if group is None:
            raise NotFound(f"there is no group {name!r}")
        found = [group]
    return group_stats.of_groups(connection, found, endings.latest)
