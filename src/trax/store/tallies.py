"""Adding up what ended: minute by minute, once a minute is over for good.

The sums are kept in two small tables, so that a page asks for some hundred rows and not for a million runs.
Nothing on the path of a job writes them. A server that schedules adds a step from time to time; any number of
servers may: a step is read without a lock and written only if nobody has gone on from the same place
meanwhile. How far it has come is the newest minute in the table, so nothing is lost by a restart. What has
ended since is read from the runs themselves.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import case, delete, func, select, true

from trax.records.tally import LENGTH, Span, Sums, begun
from trax.store import dialect, ended
from trax.store.ended import EndedSum
from trax.store.schema import tables
from trax.store.types import Utc, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Table

KEPT: Final = {Span.MINUTE: timedelta(hours=2), Span.HOUR: timedelta(days=8)}
LOOKED_BACK: Final = timedelta(days=7)
OVER_AFTER: Final = timedelta(minutes=1)
"""A finish says when it happened and commits a little later: by then, all that ended in a minute is there."""
STEP: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be added, if the newest minute is still `after`. `more` says that it is not all yet.

    Minutes before `minutes_from` are too old to be kept as such; they are part of their hours.
    """

    after: datetime | None
    sums: tuple[EndedSum, ...]
    minutes_from: datetime
    more: bool


def counted_to(connection: Connection) -> datetime | None:
    """Up to which moment what ended is in the tables."""
    newest = _newest(connection)
    return None if newest is None else newest + LENGTH[Span.MINUTE]


def next_step(connection: Connection, *, now: datetime, left_for: timedelta = OVER_AFTER) -> Step | None:
    """What ended next and is not added yet; None when there is nothing. It only reads, an hour at most.

    With `left_for`, nothing is done about what others may still add: unless some of it is left for so long.
    """
    after = _newest(connection)
    floor = begun(now - LOOKED_BACK, Span.HOUR)
    since = floor if after is None else max(floor, after + LENGTH[Span.MINUTE])
    over = begun(now - OVER_AFTER, Span.MINUTE)
    first = ended.first_since(connection, since)
    if first is None or first >= begun(now - left_for, Span.MINUTE):
        return None
    dialect.lift_limits(connection)
    start = begun(first, Span.MINUTE)
    until = min(start + STEP, over)
    sums = tuple(ended.between(connection, start, until))
    return Step(after, sums, minutes_from=over - KEPT[Span.MINUTE], more=until < over)


def add(connection: Connection, step: Step) -> bool:
    """Add a step and forget what is old; False when another server has added it already."""
    dialect.take_tally_lock(connection)
    if _newest(connection) != step.after:
        return False
    newest = max(one.at for one in step.sums)
    lasting = [one for one in step.sums if one.at >= min(newest, step.minutes_from)]
    _add_spans(connection, Span.MINUTE, lasting)
    _add_spans(connection, Span.HOUR, step.sums)
    _add_groups(connection, step.sums)
    _forget(connection, newest=newest)
    return True


def _newest(connection: Connection) -> datetime | None:
    tally = tables(connection).tally
    query = select(func.max(tally.c.at, type_=tally.c.at.type)).where(tally.c.span == word(Span.MINUTE))
    return connection.execute(query).scalar()


def _add_spans(connection: Connection, span: Span, sums: Sequence[EndedSum]) -> None:
    merged: defaultdict[tuple[datetime, str], Sums] = defaultdict(Sums)
    for one in sums:
        merged[begun(one.at, span), one.train] += one.sums
    rows = [
        {"span": span.value, "at": at, "train": train, **asdict(total)}
        for (at, train), total in sorted(merged.items())
    ]
    _add_up(connection, tables(connection).tally, rows, key=("span", "at", "train"))


def _add_groups(connection: Connection, sums: Sequence[EndedSum]) -> None:
    rows = [
        {"group_id": group_id, **asdict(total), "last_run_at": last_at}
        for group_id, (total, last_at) in sorted(of_groups(sums).items())
    ]
    _add_up(connection, tables(connection).group_tally, rows, key=("group_id",))


def of_groups(sums: Iterable[EndedSum]) -> dict[int, tuple[Sums, datetime]]:
    """The same by group, each with the moment of its last ending."""
    merged: dict[int, tuple[Sums, datetime]] = {}
    for one in sums:
        if one.group_id is not None:
            total, last_at = merged.get(one.group_id, (Sums(), one.last_at))
            merged[one.group_id] = total + one.sums, max(last_at, one.last_at)
    return merged


def _add_up(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, key: Sequence[str]
) -> None:
    """Write rows; where there is one already, its sums grow and its moments move on."""
    given = dialect.rows_of(connection.dialect.name, "rows", {one.name: one.type for one in table.c})
    # SQLite reads "FROM … ON" as the beginning of a join unless a WHERE stands between them.
    chosen = select(*(given.c[one.name] for one in table.c)).where(true())
    statement = dialect.insert(connection, table).from_select([one.name for one in table.c], chosen)
    new = statement.excluded
    grown = {
        one.name: _later(one, new[one.name]) if isinstance(one.type, Utc) else one + new[one.name]
        for one in table.c
        if one.name not in key
    }
    adding = statement.on_conflict_do_update(index_elements=list(key), set_=grown)
    connection.execute(adding, {"rows": dialect.document(rows)})


def _later(one: Any, other: Any) -> Any:
    return case((one > other, one), else_=other)


def _forget(connection: Connection, *, newest: datetime) -> None:
    """The newest minute stays: it says how far the counting has come."""
    tally = tables(connection).tally
    for span, kept in KEPT.items():
        is_old = (tally.c.span == word(span)) & (tally.c.at < newest - kept)
        connection.execute(delete(tally).where(is_old))
