"""Read and insert the log lines of runs."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, exists, insert, select

from trax.records.log_line import LogLine
from trax.records.states import LogLevel
from trax.store.dialect import document, rows_of
from trax.store.lists import shorten
from trax.store.schema import tables, tables_for
from trax.store.text import storable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Insert, Row, Select

    from trax.records.log_line import NewLogLine

LOG_COLUMNS: Final = ("metadata_id", "created_at", "level", "logger", "message", "exception", "stack_trace")


def add(connection: Connection, lines: Sequence[NewLogLine]) -> None:
    """Insert lines in this order; lines of a deleted run are dropped."""
    if lines:
        rows = [_line_row(line) | {"position": position} for position, line in enumerate(lines)]
        connection.execute(_add(connection.dialect.name), {"lines": document(rows)})


def load_by_run(
    connection: Connection,
    metadata_id: int,
    *,
    after: int | None = None,
    limit: int = 100,
    brief: bool = False,
) -> list[LogLine]:
    """The lines of a run, oldest first; `after` is the id of the last one already read."""
    log = tables(connection).log
    lines = shorten(select_records(connection)) if brief else select_records(connection)
    query = lines.where(log.c.metadata_id == metadata_id).order_by(log.c.id).limit(limit)
    if after is not None:
        query = query.where(log.c.id > after)
    return [build_record(row) for row in connection.execute(query)]


def select_records(connection: Connection) -> Select[Any]:
    return select(*(tables(connection).log.c[name] for name in ("id", *LOG_COLUMNS)))


def build_record(row: Row[Any]) -> LogLine:
    return LogLine(
        id=row.id,
        metadata_id=row.metadata_id,
        created_at=row.created_at,
        level=LogLevel(row.level),
        logger=row.logger,
        message=row.message,
        exception=row.exception,
        stack_trace=row.stack_trace,
    )


def _line_row(line: NewLogLine) -> dict[str, Any]:
    row = asdict(line)
    return {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}


@cache
def _add(dialect: str) -> Insert:
    t = tables_for(dialect)
    kinds = {name: t.log.c[name].type for name in LOG_COLUMNS}
    rows = rows_of(dialect, "lines", {"position": Integer()} | kinds)
    lines = (
        select(*(rows.c[name] for name in LOG_COLUMNS))
        .where(exists().where(t.metadata.c.id == rows.c.metadata_id))
        .order_by(rows.c.position)
    )
    return insert(t.log).from_select(list(LOG_COLUMNS), lines)
