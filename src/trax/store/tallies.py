"""Totals of ended runs per minute and hour, added after each minute is over.

The totals are in two small tables, so that a page reads some hundred rows and not a million runs. Jobs never
write them. Servers with the scheduler role add a step from time to time; several servers may do so: a step is
read without a lock, and written only if no other server has written it first. The newest minute in the table
marks how far the totals go, so a restart loses nothing. Runs that ended later are read from `metadata`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import case, delete, func, select, true

from trax.records.tally import SPAN_LENGTH, RunTotals, Span, span_start
from trax.store import dialect, ended
from trax.store.ended import MinuteTotals
from trax.store.schema import tables
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

RETENTION: Final = {Span.MINUTE: timedelta(hours=2), Span.HOUR: timedelta(days=8)}
LOOKBACK: Final = timedelta(days=7)
SETTLE_TIME: Final = timedelta(minutes=1)
"""`ended_at` is set shortly before the commit: after this time, all runs of a minute are committed."""
MAX_STEP: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TallyStep:
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


def next_step(connection: Connection, *, now: datetime, min_age: timedelta = SETTLE_TIME) -> TallyStep | None:
    """Read the next totals to add, one hour at most; None when there is nothing to add.

    Returns None if everything not yet added ended less than `min_age` ago: another server may add it.
    """
    after = _newest_minute(connection)
    floor = span_start(now - LOOKBACK, Span.HOUR)
    since = floor if after is None else max(floor, after + SPAN_LENGTH[Span.MINUTE])
    over = span_start(now - SETTLE_TIME, Span.MINUTE)
    first = ended.first_end_since(connection, since)
    if first is None or first >= span_start(now - min_age, Span.MINUTE):
        return None
    dialect.lift_limits(connection)
    start = span_start(first, Span.MINUTE)
    until = min(start + MAX_STEP, over)
    sums = tuple(ended.load_totals(connection, start, until))
    return TallyStep(after, sums, minutes_from=over - RETENTION[Span.MINUTE], more=until < over)


def add(connection: Connection, step: TallyStep) -> bool:
    """Write a step and delete old totals. Returns False if another server has already written it."""
    dialect.take_tally_lock(connection)
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
