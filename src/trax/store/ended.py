"""What ended between two moments, by minute, train and group.

There is no index over all endings by time: every finish would pay for it. But there is one within each train,
for the cleanup. So the trains are found first, each by one step along that index, and then what ended of
each.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, case, func, select

from trax.records.states import State
from trax.records.tally import Span, Sums
from trax.store.dialect import begun_at, seconds_between
from trax.store.schema import tables_for
from trax.store.types import Utc, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import CTE, ColumnElement, Connection, Select


class EndedSum(NamedTuple):
    """What ended of a train and a group in one minute, and when the last of it did."""

    at: datetime
    train: str
    group_id: int | None
    sums: Sums
    last_at: datetime


def between(
    connection: Connection, since: datetime, until: datetime, *, at_most: int | None = None
) -> list[EndedSum]:
    """What ended from one moment on and before another; of more runs than `at_most`, so many."""
    query = _between(connection.dialect.name).limit(at_most)
    rows = connection.execute(_summed(connection.dialect.name, query), {"since": since, "until": until})
    return [EndedSum(row[0], row[1], row[2], sums_of(row[3:7]), row[7]) for row in rows]


def sums_of(row: Sequence[Any]) -> Sums:
    """Four sums as the database adds them: PostgreSQL gives decimals."""
    completed, failed, cancelled, seconds = row
    return Sums(int(completed), int(failed), int(cancelled), float(seconds))


def first_since(connection: Connection, since: datetime) -> datetime | None:
    """When the first run ended that ended from this moment on."""
    return connection.execute(_first_since(connection.dialect.name), {"since": since}).scalar()


@cache
def _between(dialect: str) -> Select[*tuple[Any, ...]]:
    run, names = tables_for(dialect).metadata, trains(dialect)
    since, until = bindparam("since", type_=Utc), bindparam("until", type_=Utc)
    its_runs = (run.c.train == names.c.name) & (run.c.ended_at >= since) & (run.c.ended_at < until)
    minute = begun_at(dialect, run.c.ended_at, Span.MINUTE).label("at")
    of_run = (run.c.train, run.c.group_id, run.c.state, run.c.started_at, run.c.ended_at)
    return select(minute, *of_run).select_from(names).join(run, its_runs)


def _summed(dialect: str, runs: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    ended = runs.subquery("ended")
    completed = ended.c.state == word(State.COMPLETED)
    took = seconds_between(dialect, ended.c.started_at, ended.c.ended_at)
    key = (ended.c.at, ended.c.train, ended.c.group_id)
    return select(
        *key,
        _how_many(completed),
        _how_many(ended.c.state == word(State.FAILED)),
        _how_many(ended.c.state == word(State.CANCELLED)),
        func.sum(case((completed, took), else_=0.0)),
        func.max(ended.c.ended_at, type_=Utc),
    ).group_by(*key)


@cache
def _first_since(dialect: str) -> Select[Any]:
    run, names = tables_for(dialect).metadata, trains(dialect)
    first = (
        select(func.min(run.c.ended_at, type_=Utc))
        .where(run.c.train == names.c.name, run.c.ended_at >= bindparam("since", type_=Utc))
        .correlate(names)
        .scalar_subquery()
    )
    firsts = select(first.label("at")).select_from(names).subquery("firsts")
    return select(func.min(firsts.c.at, type_=Utc))


@cache
def trains(dialect: str) -> CTE:
    """The names of all trains of which a run has ended, each found by a step along the index."""
    run = tables_for(dialect).metadata
    ended = run.c.ended_at.is_not(None)
    first = select(func.min(run.c.train).label("name")).where(ended).cte("names", recursive=True)
    following = select(func.min(run.c.train)).where(ended, run.c.train > first.c.name).correlate(first)
    return first.union_all(select(following.scalar_subquery()).where(first.c.name.is_not(None)))


def _how_many(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))
