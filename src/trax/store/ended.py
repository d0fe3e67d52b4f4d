"""Totals of the runs that ended between two times, by minute, train and group.

There is no index on `ended_at` alone: every finish would pay for it. The cleanup has one on (train,
ended_at). So the train names are read first, one index step each, and then the ended runs of each train.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, case, func, select

from trax.records.states import State
from trax.records.tally import RunTotals, Span
from trax.store.dialect import seconds_between, start_of_span
from trax.store.schema import tables_for
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import CTE, ColumnElement, Connection, Select


class MinuteTotals(NamedTuple):
    """Totals of the runs of a train and group that ended in one minute, and when the last one ended."""

    at: datetime
    train: str
    group_id: int | None
    totals: RunTotals
    last_at: datetime


def load_totals(
    connection: Connection, since: datetime, until: datetime, *, at_most: int | None = None
) -> list[MinuteTotals]:
    """Totals of the runs that ended from `since` until before `until`; reads at most `at_most` runs."""
    query = _select_between(connection.dialect.name).limit(at_most)
    rows = connection.execute(_sum_runs(connection.dialect.name, query), {"since": since, "until": until})
    return [MinuteTotals(row[0], row[1], row[2], build_totals(row[3:7]), row[7]) for row in rows]


def build_totals(row: Sequence[Any]) -> RunTotals:
    """Convert four sums of the database, which are decimals on PostgreSQL."""
    completed, failed, cancelled, seconds = row
    return RunTotals(int(completed), int(failed), int(cancelled), float(seconds))


def first_end_since(connection: Connection, since: datetime) -> datetime | None:
    """When the first run ended, from this time on."""
    return connection.execute(_select_first_since(connection.dialect.name), {"since": since}).scalar()


@cache
def _select_between(dialect: str) -> Select[*tuple[Any, ...]]:
    run, names = tables_for(dialect).metadata, train_names(dialect)
    since, until = bindparam("since", type_=Utc), bindparam("until", type_=Utc)
    in_period = (run.c.train == names.c.name) & (run.c.ended_at >= since) & (run.c.ended_at < until)
    minute = start_of_span(dialect, run.c.ended_at, Span.MINUTE).label("at")
    of_run = (run.c.train, run.c.group_id, run.c.state, run.c.started_at, run.c.ended_at)
    return select(minute, *of_run).select_from(names).join(run, in_period)


def _sum_runs(dialect: str, runs: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    ended = runs.subquery("ended")
    completed = ended.c.state == sql_literal(State.COMPLETED)
    duration = seconds_between(dialect, ended.c.started_at, ended.c.ended_at)
    key = (ended.c.at, ended.c.train, ended.c.group_id)
    return select(
        *key,
        _count_where(completed),
        _count_where(ended.c.state == sql_literal(State.FAILED)),
        _count_where(ended.c.state == sql_literal(State.CANCELLED)),
        func.sum(case((completed, duration), else_=0.0)),
        func.max(ended.c.ended_at, type_=Utc),
    ).group_by(*key)


@cache
def _select_first_since(dialect: str) -> Select[Any]:
    run, names = tables_for(dialect).metadata, train_names(dialect)
    first = (
        select(func.min(run.c.ended_at, type_=Utc))
        .where(run.c.train == names.c.name, run.c.ended_at >= bindparam("since", type_=Utc))
        .correlate(names)
        .scalar_subquery()
    )
    firsts = select(first.label("at")).select_from(names).subquery("firsts")
    return select(func.min(firsts.c.at, type_=Utc))


@cache
def train_names(dialect: str) -> CTE:
    """The names of all trains with an ended run, each found by one index step."""
    run = tables_for(dialect).metadata
    ended = run.c.ended_at.is_not(None)
    first = select(func.min(run.c.train).label("name")).where(ended).cte("names", recursive=True)
    following = select(func.min(run.c.train)).where(ended, run.c.train > first.c.name).correlate(first)
    return first.union_all(select(following.scalar_subquery()).where(first.c.name.is_not(None)))


def _count_where(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))
