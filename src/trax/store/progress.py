"""Write the progress of runs, and read their cancel requests."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import case, select, text, update

from trax.records.states import CancelReason
from trax.store.dialect import among, document, id_document, rows_of
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import BigId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Select, Update

    from trax.records.metadata import ProgressUpdate

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
        connection.execute(_replace_inputs(connection.dialect.name), {"inputs": document(rows)})


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
        name: metadata.c[name].type for name in (*JUNCTION_COLUMNS, *PROGRESS_COLUMNS)
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
        .values(**junction, **progress)
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
