"""How far running runs have come, and which of them somebody wants stopped."""

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

    from trax.records.metadata import ProgressNote

JUNCTION: Final = ("current_junction", "junction_started_at")
TOLD: Final = ("progress", "progress_message")
IN_PROGRESS = "state = 'in_progress'"


def write(connection: Connection, notes: Sequence[ProgressNote]) -> set[int]:
    """Show how far these runs have come, those that still run; returns which were written.

    A row that somebody else holds in this moment is passed over: it is being ended, or it is asked to stop,
    and waiting for it in another order than theirs could lock both for good.
    """
    if not notes:
        return set()
    rows = [_row(note) for note in notes]
    return set(connection.execute(_write(connection.dialect.name), {"notes": document(rows)}).scalars())


def write_last(connection: Connection, metadata_id: int, fraction: float, message: str | None) -> None:
    """What a run said last, after its end; waits for whoever holds the record, so write nothing beside it."""
    metadata = tables(connection).metadata
    told = dict(zip(TOLD, (fraction, message and storable(message)), strict=True))
    connection.execute(update(metadata).where(metadata.c.id == metadata_id).values(**told))


def replace_inputs(connection: Connection, inputs: Mapping[int, str | None]) -> None:
    """Let these records keep something else than the input they were run with."""
    if inputs:
        rows = [{"metadata_id": metadata_id, "input": text} for metadata_id, text in inputs.items()]
        connection.execute(_replace_inputs(connection.dialect.name), {"inputs": document(rows)})


def asked_to_stop(connection: Connection, ids: Iterable[int]) -> dict[int, CancelReason]:
    """Those of these runs that somebody wants stopped, and why."""
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.cancel_reason).where(
        among(connection, metadata.c.id), metadata.c.cancel_requested
    )
    rows = connection.execute(query, {"ids": id_document(ids)})
    return {row.id: CancelReason(row.cancel_reason or CancelReason.REQUESTED) for row in rows}


def _row(note: ProgressNote) -> dict[str, Any]:
    row = asdict(note)
    return {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}


@cache
def _write(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    kinds = {"metadata_id": BigId} | {name: metadata.c[name].type for name in (*JUNCTION, *TOLD)}
    given = rows_of(dialect, "notes", kinds)
    junction = {name: given.c[name] for name in JUNCTION}
    is_told = given.c.progress.is_not(None)
    told = {name: case((is_told, given.c[name]), else_=metadata.c[name]) for name in TOLD}
    return (
        update(metadata)
        .where(metadata.c.id == given.c.metadata_id, metadata.c.id.in_(_free(dialect)))
        .values(**junction, **told)
        .returning(metadata.c.id)
    )


@cache
def _replace_inputs(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    given = rows_of(dialect, "inputs", {"metadata_id": BigId, "input": metadata.c.input.type})
    return update(metadata).where(metadata.c.id == given.c.metadata_id).values(input=given.c.input)


def _free(dialect: str) -> Select[Any]:
    metadata = tables_for(dialect).metadata
    wanted = rows_of(dialect, "notes", {"metadata_id": BigId})
    return (
        select(metadata.c.id)
        .where(metadata.c.id.in_(select(wanted.c.metadata_id)), text(IN_PROGRESS))
        # Not FOR UPDATE: a log line that is written for one of these rows meanwhile must not wait for it.
        .with_for_update(skip_locked=True, key_share=True)
    )
