"""Totals of ended runs by minute, hour, train and group: compute, store and read them.

There is no index on `ended_at` alone: every finish would pay for it. The cleanup has one on (train,
ended_at). So the train names are read first, one index step each, and then the ended runs of each train.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, func, select, true, update

from trax.bounds import EARLIEST, LATEST
from trax.records.metadata import ADMINISTRATIVE_PREFIX
from trax.records.states import State
from trax.records.stats import SPAN_LENGTH, RunTotals, Span, span_start
from trax.store import dialect
from trax.store.dialect import seconds_between, start_of_span
from trax.store.schema import tables, tables_for
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import CTE, ColumnElement, Select, Subquery, Table


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


RETENTION: Final = {Span.MINUTE: timedelta(hours=2), Span.HOUR: timedelta(days=8)}
LOOKBACK: Final = timedelta(days=7)
SETTLE_TIME: Final = timedelta(minutes=1)
"""`ended_at` is set shortly before the commit: after this time, all runs of a minute are committed."""
MAX_STEP: Final = timedelta(hours=1)
MAX_UNSETTLED: Final = 100_000
"""How many runs that are not in the totals yet are read for their groups."""


@dataclass(frozen=True, slots=True)
class TotalsStep:
    """Totals to add, if the newest minute is still `after`. `more`: another step follows.

    Minutes before `minutes_from` are too old to store; they only count in their hours.
    """

    after: datetime | None
    totals: tuple[MinuteTotals, ...]
    minutes_from: datetime
    more: bool


def load_totals_end(connection: Connection) -> datetime | None:
    """Return the end of the last minute in the totals; None if they are empty."""
    newest = _newest_minute(connection)
    return None if newest is None else newest + SPAN_LENGTH[Span.MINUTE]


def load_unsettled_groups(connection: Connection) -> list[int] | None:
    """The groups of runs that have ended and are not in the totals yet; None if there are too many runs."""
    since = load_totals_end(connection) or EARLIEST
    ended = _select_between(connection.dialect.name).limit(MAX_UNSETTLED + 1).subquery()
    query = select(ended.c.group_id, func.count()).group_by(ended.c.group_id)
    rows = connection.execute(query, {"since": since, "until": LATEST}).all()
    if sum(count for _, count in rows) > MAX_UNSETTLED:
        return None
    return [group_id for group_id, _ in rows if group_id is not None]


def next_step(
    connection: Connection, *, now: datetime, min_age: timedelta = SETTLE_TIME
) -> TotalsStep | None:
    """Read the next totals to add, one hour at most; None when there is nothing to add.

    Returns None if everything not yet added ended less than `min_age` ago: another server may add it.
    """
    after = _newest_minute(connection)
    floor = span_start(now - LOOKBACK, Span.HOUR)
    since = floor if after is None else max(floor, after + SPAN_LENGTH[Span.MINUTE])
    over = span_start(now - SETTLE_TIME, Span.MINUTE)
    first = first_end_since(connection, since)
    if first is None or first >= span_start(now - min_age, Span.MINUTE):
        return None
    dialect.lift_limits(connection)
    start = span_start(first, Span.MINUTE)
    until = min(start + MAX_STEP, over)
    sums = tuple(load_totals(connection, start, until))
    return TotalsStep(after, sums, minutes_from=over - RETENTION[Span.MINUTE], more=until < over)


def add(connection: Connection, step: TotalsStep) -> bool:
    """Write a step and delete old totals. Returns False if another server has already written it."""
    dialect.take_totals_lock(connection)
    if _newest_minute(connection) != step.after:
        return False
    newest = max(total.at for total in step.totals)
    recent = [total for total in step.totals if total.at >= min(newest, step.minutes_from)]
    _add_spans(connection, Span.MINUTE, recent)
    _add_spans(connection, Span.HOUR, step.totals)
    _add_groups(connection, step.totals)
    _delete_old(connection, newest=newest)
    return True


def _newest_minute(connection: Connection) -> datetime | None:
    tally = tables(connection).tally
    query = select(func.max(tally.c.at, type_=tally.c.at.type)).where(
        tally.c.span == sql_literal(Span.MINUTE)
    )
    return connection.execute(query).scalar()


def _add_spans(connection: Connection, span: Span, sums: Sequence[MinuteTotals]) -> None:
    merged: defaultdict[tuple[datetime, str], RunTotals] = defaultdict(RunTotals)
    for ended_sum in sums:
        merged[span_start(ended_sum.at, span), ended_sum.train] += ended_sum.totals
    rows = [
        {"span": span.value, "at": at, "train": train, **asdict(total)}
        for (at, train), total in sorted(merged.items())
    ]
    _upsert_totals(connection, tables(connection).tally, rows, key=("span", "at", "train"))


def _add_groups(connection: Connection, sums: Sequence[MinuteTotals]) -> None:
    rows = [
        {"group_id": group_id, **asdict(total), "last_run_at": last_at}
        for group_id, (total, last_at) in sorted(sum_by_group(sums).items())
    ]
    _upsert_totals(connection, tables(connection).group_tally, rows, key=("group_id",))
    _return_groups(connection, [*sum_by_group(sums)])


def _return_groups(connection: Connection, ids: Sequence[int]) -> None:
    """Bring back retired groups of runs that have ended: they are in use again."""
    group = tables(connection).manifest_group
    statement = update(group).where(dialect.among(connection, group.c.id), group.c.retired_at.is_not(None))
    connection.execute(statement.values(retired_at=None), {"ids": dialect.id_document(ids)})


def sum_by_group(sums: Iterable[MinuteTotals]) -> dict[int, tuple[RunTotals, datetime]]:
    """Merge the totals by group, each with the time of its last ended run."""
    merged: dict[int, tuple[RunTotals, datetime]] = {}
    for ended_sum in sums:
        if ended_sum.group_id is not None:
            total, last_at = merged.get(ended_sum.group_id, (RunTotals(), ended_sum.last_at))
            merged[ended_sum.group_id] = total + ended_sum.totals, max(last_at, ended_sum.last_at)
    return merged


def _upsert_totals(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, key: Sequence[str]
) -> None:
    """Insert rows, or add to existing ones: numbers are summed, times take the later value."""
    source = dialect.rows_of(
        connection.dialect.name, "rows", {column.name: column.type for column in table.c}
    )
    # SQLite parses "FROM … ON" as a join unless there is a WHERE in between.
    values = select(*(source.c[column.name] for column in table.c)).where(true())
    statement = dialect.insert(connection, table).from_select([column.name for column in table.c], values)
    new = statement.excluded
    changes = {
        column.name: _later(column, new[column.name])
        if isinstance(column.type, Utc)
        else column + new[column.name]
        for column in table.c
        if column.name not in key
    }
    upsert = statement.on_conflict_do_update(index_elements=list(key), set_=changes)
    connection.execute(upsert, {"rows": dialect.document(rows)})


def _later(one: Any, other: Any) -> Any:
    return case((one > other, one), else_=other)


def _delete_old(connection: Connection, *, newest: datetime) -> None:
    """Delete totals past their retention. The newest minute always stays: it marks how far the totals go."""
    tally = tables(connection).tally
    for span, retention in RETENTION.items():
        is_old = (tally.c.span == sql_literal(span)) & (tally.c.at < newest - retention)
        connection.execute(delete(tally).where(is_old))


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
    totals_end = load_totals_end(connection)
    floor = span_start(now - LOOKBACK, Span.HOUR)
    since = floor if totals_end is None else max(floor, totals_end)
    latest = load_totals(connection, since, now + CLOCK_SKEW, at_most=LATEST_AT_MOST + 1)
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


def latest_failures(
    connection: Connection, trains: Sequence[str], *, since: datetime
) -> dict[str, tuple[int, int]]:
    """How many of the latest runs of each train failed, and how many completed or failed."""
    query = _select_latest_failures(connection.dialect.name)
    results = ((train, connection.execute(query, {"train": train, "since": since})) for train in trains)
    return {train: (int(failed or 0), int(ended or 0)) for train, rows in results for failed, ended in rows}


@cache
def _select_latest_failures(dialect: str) -> Select[*tuple[Any, ...]]:
    latest = _latest_runs(dialect)
    completed, failed = (latest.c.state == sql_literal(state) for state in (State.COMPLETED, State.FAILED))
    return select(_count_where(failed), _count_where(completed | failed))


@cache
def _select_latest_durations(dialect: str) -> Select[Any]:
    """Take a sample of ended runs and keep the completed ones: finding a full sample could be slow."""
    latest = _latest_runs(dialect)
    took = seconds_between(dialect, latest.c.started_at, latest.c.ended_at)
    return select(took).where(latest.c.state == sql_literal(State.COMPLETED)).order_by(took)


def _latest_runs(dialect: str) -> Subquery:
    run = tables_for(dialect).metadata
    return (
        select(run.c.started_at, run.c.ended_at, run.c.state)
        .where(run.c.train == bindparam("train"), run.c.ended_at >= bindparam("since", type_=Utc))
        .order_by(run.c.ended_at.desc())
        .limit(SAMPLE_SIZE)
        .subquery()
    )
