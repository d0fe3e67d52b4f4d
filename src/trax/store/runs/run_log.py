"""Write the progress and log lines of runs, and read log lines and cancel requests."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, case, exists, func, insert, select, text, update

from trax.records.metadata import LogLine
from trax.records.states import CancelReason, LogLevel
from trax.store.dialect import (
    among,
    document,
    documents,
    id_document,
    later_of,
    limit_statement_time,
    rows_of,
)
from trax.store.listing import RecordQuery, Search, equal_to, shorten
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Update

    from trax.records.metadata import NewLogLine, ProgressUpdate
    from trax.records.nouns import LogFilter


JUNCTION_COLUMNS: Final = ("current_junction", "junction_started_at")
PROGRESS_COLUMNS: Final = ("progress", "progress_message")
IN_PROGRESS = "state = 'in_progress'"


def write(connection: Connection, notes: Sequence[ProgressUpdate]) -> set[int]:
    """Write the progress of runs still in progress. Returns the ids that were written.

    Locked rows are skipped: they are being finished or cancelled, and waiting for them could deadlock.
    """
    if not notes:
        return set()
    rows = [_row(note) for note in notes]
    return set(connection.execute(_write(connection.dialect.name), {"notes": document(rows)}).scalars())


def write_final(connection: Connection, metadata_id: int, fraction: float, message: str | None) -> None:
    """Write the last progress of an ended run. It waits for a row lock: use a separate transaction."""
    metadata = tables(connection).metadata
    values = dict(zip(PROGRESS_COLUMNS, (fraction, message and storable(message)), strict=True))
    connection.execute(update(metadata).where(metadata.c.id == metadata_id).values(**values))


def replace_inputs(connection: Connection, inputs: Mapping[int, str | None]) -> None:
    """Replace the stored inputs of runs."""
    if inputs:
        rows = [{"metadata_id": metadata_id, "input": text} for metadata_id, text in inputs.items()]
        for part in documents(rows):
            connection.execute(_replace_inputs(connection.dialect.name), {"inputs": part})


def find_cancel_requests(connection: Connection, ids: Iterable[int]) -> dict[int, CancelReason]:
    """Load the cancel reasons of those runs whose cancellation was requested."""
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.cancel_reason).where(
        among(connection, metadata.c.id), metadata.c.cancel_requested
    )
    rows = connection.execute(query, {"ids": id_document(ids)})
    return {row.id: CancelReason(row.cancel_reason or CancelReason.REQUESTED) for row in rows}


def _row(note: ProgressUpdate) -> dict[str, Any]:
    row = asdict(note)
    return {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}


@cache
def _write(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    types = {"metadata_id": BigId} | {
        name: metadata.c[name].type for name in ("started_at", *JUNCTION_COLUMNS, *PROGRESS_COLUMNS)
    }
    notes = rows_of(dialect, "notes", types)
    junction = {name: notes.c[name] for name in JUNCTION_COLUMNS}
    has_progress = notes.c.progress.is_not(None)
    progress = {
        name: case((has_progress, notes.c[name]), else_=metadata.c[name]) for name in PROGRESS_COLUMNS
    }
    return (
        update(metadata)
        .where(metadata.c.id == notes.c.metadata_id, metadata.c.id.in_(_select_unlocked(dialect)))
        .values(
            started_at=func.coalesce(
                metadata.c.started_at, later_of(dialect, metadata.c.created_at, notes.c.started_at)
            ),
            **junction,
            **progress,
        )
        .returning(metadata.c.id)
    )


@cache
def _replace_inputs(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    inputs = rows_of(dialect, "inputs", {"metadata_id": BigId, "input": metadata.c.input.type})
    return update(metadata).where(metadata.c.id == inputs.c.metadata_id).values(input=inputs.c.input)


def _select_unlocked(dialect: str) -> Select[Any]:
    metadata = tables_for(dialect).metadata
    notes = rows_of(dialect, "notes", {"metadata_id": BigId})
    return (
        select(metadata.c.id)
        .where(metadata.c.id.in_(select(notes.c.metadata_id)), text(IN_PROGRESS))
        # FOR NO KEY UPDATE: an insert of log lines for these rows must not wait for this lock.
        .with_for_update(skip_locked=True, key_share=True)
    )


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
    before: int | None = None,
    after: int | None = None,
    limit: int = 100,
    brief: bool = False,
) -> list[LogLine]:
    """The lines of a run, oldest first: those that follow `after`, or the last ones before `before`."""
    log = tables(connection).log
    lines = shorten(select_records(connection)) if brief else select_records(connection)
    goes_back = before is not None and after is None
    query = lines.where(log.c.metadata_id == metadata_id).limit(limit)
    query = query.order_by(log.c.id.desc() if goes_back else log.c.id)
    if after is not None:
        query = query.where(log.c.id > after)
    if before is not None:
        query = query.where(log.c.id < before)
    found = [build_record(row) for row in connection.execute(query)]
    return found[::-1] if goes_back else found


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


SEARCH_SECONDS: Final = 2.0
LEVELS: Final = tuple(LogLevel)
"""Log levels, lowest first."""


def _search(connection: Connection, filters: LogFilter) -> Search:
    limit_statement_time(connection, seconds=SEARCH_SECONDS)
    log = tables(connection).log
    others: list[ColumnElement[bool]] = []
    if (level := filters.get("level")) is not None:
        others.append(log.c.level.in_(LEVELS[LEVELS.index(LogLevel(level)) :]))
    if (text := filters.get("text")) is not None:
        others.append(log.c.message.icontains(text, autoescape=True))
    return Search(table=log, indexed=equal_to(log, filters, "metadata_id"), unindexed=others)


LINES: Final = RecordQuery(search=_search, records=select_records, record=build_record)
page = LINES.page
