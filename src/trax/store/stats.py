"""Read statistics of ended runs: from the totals, and from runs not yet included in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, bindparam, case, func, select

from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.states import State
from trax.records.tally import RunTotals, Span, span_start
from trax.store import ended, tallies
from trax.store.dialect import seconds_between
from trax.store.ended import MinuteTotals, build_totals
from trax.store.schema import tables, tables_for
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Select

LATEST_AT_MOST: Final = 10_000
"""The most runs read that are not in the totals yet; there are more only under high load."""
SAMPLE_SIZE: Final = 200
"""How many of a train's latest runs are used for percentiles."""
CLOCK_SKEW: Final = timedelta(minutes=1)
"""A server's clock may be slightly ahead of ours."""

_TotalsKey = tuple[Span, datetime, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTotals:
    """Totals of runs that ended in the last seven days, as of one moment.

    Not `exact` if too many runs have ended since `totals_end` to read them all; the totals catch up soon.
    """

    connection: Connection
    latest: tuple[MinuteTotals, ...]
    totals_end: datetime | None
    exact: bool
    admin: bool
    totals_cache: dict[_TotalsKey, dict[Any, RunTotals]] = field(
        default_factory=dict[_TotalsKey, dict[Any, RunTotals]]
    )
    """Totals already read: a page needs the same ones several times."""

    def by_train(self, since: datetime) -> dict[str, RunTotals]:
        """Totals per train, from the start of the hour of `since`."""
        since = span_start(since, Span.HOUR)
        merged = self._load_totals(Span.HOUR, since, "train")
        for total in self._latest_since(since):
            merged[total.train] += total.totals
        return merged

    def by_span(self, span: Span, since: datetime) -> dict[datetime, RunTotals]:
        """Totals per minute or hour, from `since`."""
        since = span_start(since, span)
        merged = self._load_totals(span, since, "at")
        for total in self._latest_since(since):
            merged[span_start(total.at, span)] += total.totals
        return merged

    def by_hour_of(self, trains: Sequence[str], since: datetime) -> list[dict[datetime, int]]:
        """Ended runs per hour from `since`, one dict per train."""
        since = span_start(since, Span.HOUR)
        tally = tables(self.connection).tally
        ended_runs = tally.c.completed + tally.c.failed + tally.c.cancelled
        counts = (func.sum(case((tally.c.train == train, ended_runs), else_=0)) for train in trains)
        query = select(tally.c.at, *counts).where(tally.c.span == sql_literal(Span.HOUR), tally.c.at >= since)
        rows = self.connection.execute(query.where(tally.c.train.in_(trains)).group_by(tally.c.at)).all()
        counters = [
            Counter({row[0]: int(row[column]) for row in rows}) for column in range(1, len(trains) + 1)
        ]
        for total in self._latest_since(since):
            if total.train in trains:
                counters[trains.index(total.train)][span_start(total.at, Span.HOUR)] += total.totals.total
        return [dict(counter) for counter in counters]

    def _latest_since(self, since: datetime) -> Iterable[MinuteTotals]:
        return (total for total in self.latest if total.at >= since)

    def _load_totals(self, span: Span, since: datetime, key: str) -> defaultdict[Any, RunTotals]:
        cache_key = (span, since, key)
        if cache_key not in self.totals_cache:
            self.totals_cache[cache_key] = self._query_totals(span, since, key)
        return defaultdict(RunTotals, self.totals_cache[cache_key])

    def _query_totals(self, span: Span, since: datetime, key: str) -> dict[Any, RunTotals]:
        tally = tables(self.connection).tally
        sums = (func.sum(tally.c[name]) for name in RunTotals.__slots__)
        query = select(tally.c[key], *sums).where(tally.c.span == sql_literal(span), tally.c.at >= since)
        query = query.group_by(tally.c[key])
        if not self.admin:
            query = query.where(tally.c.train.not_like(f"{ADMINISTRATIVE_PREFIX}%"))
        return {row[0]: build_totals(row[1:]) for row in self.connection.execute(query)}


def read_totals(connection: Connection, *, now: datetime, admin: bool) -> EndedTotals:
    """Read the totals. Call it first in its transaction, so that all later reads see the same moment."""
    totals_end = tallies.load_totals_end(connection)
    floor = span_start(now - tallies.LOOKBACK, Span.HOUR)
    since = floor if totals_end is None else max(floor, totals_end)
    latest = ended.load_totals(connection, since, now + CLOCK_SKEW, at_most=LATEST_AT_MOST + 1)
    exact = sum(total.totals.total for total in latest) <= LATEST_AT_MOST
    visible = [total for total in latest if admin or not total.train.startswith(ADMINISTRATIVE_PREFIX)]
    return EndedTotals(
        connection=connection, latest=tuple(visible), totals_end=totals_end, exact=exact, admin=admin
    )


def latest_durations(
    connection: Connection, trains: Sequence[str], *, since: datetime
) -> dict[str, list[float]]:
    """Load the durations in seconds of the latest completed runs per train, sorted."""
    query = _select_latest_durations(connection.dialect.name)
    results = ((train, connection.execute(query, {"train": train, "since": since})) for train in trains)
    return {train: [float(seconds) for (seconds,) in rows] for train, rows in results}


@cache
def _select_latest_durations(dialect: str) -> Select[Any]:
    """Take a sample of ended runs and keep the completed ones: finding a full sample could be slow."""
    run = tables_for(dialect).metadata
    latest = (
        select(run.c.started_at, run.c.ended_at, run.c.state)
        .where(run.c.train == bindparam("train"), run.c.ended_at >= bindparam("since", type_=Utc))
        .order_by(run.c.ended_at.desc())
        .limit(SAMPLE_SIZE)
        .subquery()
    )
    took = seconds_between(dialect, latest.c.started_at, latest.c.ended_at)
    return select(took).where(latest.c.state == sql_literal(State.COMPLETED)).order_by(took)
