"""What ended, read from the sums, and from the runs themselves where the sums do not reach yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, bindparam, case, func, select

from trax.records.metadata import ADMINISTRATIVE
from trax.records.states import State
from trax.records.tally import Span, Sums, begun
from trax.store import ended, tallies
from trax.store.dialect import seconds_between
from trax.store.ended import EndedSum, sums_of
from trax.store.schema import tables, tables_for
from trax.store.types import Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Select

LATEST_AT_MOST: Final = 10_000
"""How many runs are looked at that the sums do not have yet; there are more only under great load."""
SAMPLED: Final = 200
"""How many of the latest runs of a train its percentile is taken from."""
AHEAD: Final = timedelta(minutes=1)
"""Some server's clock may be a little ahead of the moment we ask at."""

_Asked = tuple[Span, datetime, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """What has ended within seven days, to be asked in several ways, all about one moment.

    Not `exact` while more has ended since `counted_to` than is worth reading: the sums will have it soon.
    """

    connection: Connection
    latest: tuple[EndedSum, ...]
    counted_to: datetime | None
    exact: bool
    admin: bool
    summed: dict[_Asked, dict[Any, Sums]] = field(default_factory=dict[_Asked, dict[Any, Sums]])
    """What was read already: a page asks for the same sums in several ways."""

    def by_train(self, since: datetime) -> dict[str, Sums]:
        """What ended from the hour of this moment on, of each train."""
        since = begun(since, Span.HOUR)
        merged = self._summed(Span.HOUR, since, "train")
        for one in self._latest(since):
            merged[one.train] += one.sums
        return merged

    def by_span(self, span: Span, since: datetime) -> dict[datetime, Sums]:
        """What ended in each minute or hour from this moment on."""
        since = begun(since, span)
        merged = self._summed(span, since, "at")
        for one in self._latest(since):
            merged[begun(one.at, span)] += one.sums
        return merged

    def by_hour_of(self, trains: Sequence[str], since: datetime) -> list[dict[datetime, int]]:
        """How many runs of each of these trains ended in each hour from this moment on."""
        since = begun(since, Span.HOUR)
        tally = tables(self.connection).tally
        ended_runs = tally.c.completed + tally.c.failed + tally.c.cancelled
        counts = (func.sum(case((tally.c.train == train, ended_runs), else_=0)) for train in trains)
        query = select(tally.c.at, *counts).where(tally.c.span == word(Span.HOUR), tally.c.at >= since)
        rows = self.connection.execute(query.where(tally.c.train.in_(trains)).group_by(tally.c.at)).all()
        found = [Counter({row[0]: int(row[place]) for row in rows}) for place in range(1, len(trains) + 1)]
        for one in self._latest(since):
            if one.train in trains:
                found[trains.index(one.train)][begun(one.at, Span.HOUR)] += one.sums.ended
        return [dict(each) for each in found]

    def _latest(self, since: datetime) -> Iterable[EndedSum]:
        return (one for one in self.latest if one.at >= since)

    def _summed(self, span: Span, since: datetime, key: str) -> defaultdict[Any, Sums]:
        asked = (span, since, key)
        if asked not in self.summed:
            self.summed[asked] = self._read(span, since, key)
        return defaultdict(Sums, self.summed[asked])

    def _read(self, span: Span, since: datetime, key: str) -> dict[Any, Sums]:
        tally = tables(self.connection).tally
        sums = (func.sum(tally.c[name]) for name in Sums.__slots__)
        query = select(tally.c[key], *sums).where(tally.c.span == word(span), tally.c.at >= since)
        query = query.group_by(tally.c[key])
        if not self.admin:
            query = query.where(tally.c.train.not_like(f"{ADMINISTRATIVE}%"))
        return {row[0]: sums_of(row[1:]) for row in self.connection.execute(query)}


def read(connection: Connection, *, now: datetime, admin: bool) -> Endings:
    """The transaction's first statement: what is read afterwards is all of the same moment."""
    counted_to = tallies.counted_to(connection)
    floor = begun(now - tallies.LOOKED_BACK, Span.HOUR)
    since = floor if counted_to is None else max(floor, counted_to)
    latest = ended.between(connection, since, now + AHEAD, at_most=LATEST_AT_MOST + 1)
    exact = sum(one.sums.ended for one in latest) <= LATEST_AT_MOST
    shown = [one for one in latest if admin or not one.train.startswith(ADMINISTRATIVE)]
    return Endings(
        connection=connection, latest=tuple(shown), counted_to=counted_to, exact=exact, admin=admin
    )


def latest_durations(
    connection: Connection, trains: Sequence[str], *, since: datetime
) -> dict[str, list[float]]:
    """How many seconds the latest completed runs of these trains took, each in order."""
    query = _latest_of(connection.dialect.name)
    asked = ((train, connection.execute(query, {"train": train, "since": since})) for train in trains)
    return {train: [float(seconds) for (seconds,) in rows] for train, rows in asked}


@cache
def _latest_of(dialect: str) -> Select[Any]:
    """Of the latest that ended in any way: looking for so many that completed might take long."""
    run = tables_for(dialect).metadata
    latest = (
        select(run.c.started_at, run.c.ended_at, run.c.state)
        .where(run.c.train == bindparam("train"), run.c.ended_at >= bindparam("since", type_=Utc))
        .order_by(run.c.ended_at.desc())
        .limit(SAMPLED)
        .subquery()
    )
    took = seconds_between(dialect, latest.c.started_at, latest.c.ended_at)
    return select(took).where(latest.c.state == word(State.COMPLETED)).order_by(took)
