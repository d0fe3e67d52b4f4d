"""Load the last failure of dead letters, and the input of the run that failed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, select

from trax.records.fingerprint import fingerprint
from trax.records.states import State
from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.schema import tables_for
from trax.store.text import storable
from trax.store.types import BigId, sql_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row, Select

MAX_REASON_CHARACTERS: Final = 1_000
"""How much of a failure reason a letter keeps; the run has the whole."""


def add_failures(connection: Connection, letters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add to each letter its last failure, the fingerprint, and the input of the run that failed.

    The run is `last_metadata_id` of the letter, else the last failed run of the manifest. Letters are rare,
    so an extra query is fine.
    """
    rows_wanted = [
        {
            "place": position,
            "manifest_id": letter["manifest_id"] if letter["retry_count"] else None,
            "metadata_id": letter.get("last_metadata_id"),
        }
        for position, letter in enumerate(letters)
    ]
    rows = connection.execute(
        _select_last_failures(connection.dialect.name), {"letters": document(rows_wanted)}
    )
    runs = {row.place: row for row in rows}
    return [_add_failure(letter, runs.get(position)) for position, letter in enumerate(letters)]


def load_failed_inputs(connection: Connection, manifest_ids: Sequence[int]) -> dict[int, str | None]:
    """The input of the last failed run of each manifest, by manifest id, as JSON text."""
    if not manifest_ids:
        return {}
    rows = connection.execute(
        _select_failed_inputs(connection.dialect.name), {"ids": id_document(manifest_ids)}
    )
    return {row.id: row.input for row in rows}


def _add_failure(letter: Mapping[str, Any], run: Row[Any] | None) -> dict[str, Any]:
    """Add the failure of `run` to a letter; without a run, the letter's reason is the failure.

    The input comes from the run's entry, which has all of it; without an entry the letter's input stays.
    """
    exception, junction, reason = (
        (run.failure_exception, run.failure_junction, run.failure_reason) if run else (None, None, None)
    )
    own_input = run.entry_input if run else None
    return {
        **letter,
        "input": letter["input"] if own_input is None else own_input,
        "last_metadata_id": run.id if run else None,
        "failure_exception": exception,
        "failure_junction": junction,
        "failure_reason": storable(reason[:MAX_REASON_CHARACTERS]) if reason else None,
        "fingerprint": fingerprint(letter["train"], exception, junction, reason or letter["reason"]),
    }


@cache
def _select_last_failures(dialect: str) -> Select[*tuple[Any, ...]]:
    run, entry = tables_for(dialect).metadata, tables_for(dialect).work_queue
    kinds = {"place": Integer(), "manifest_id": BigId, "metadata_id": BigId}
    letters = rows_of(dialect, "letters", kinds)
    failed = run.alias("failed")
    of_manifest = (
        select(func.max(failed.c.id))
        .where(failed.c.manifest_id == letters.c.manifest_id, failed.c.state == sql_literal(State.FAILED))
        .scalar_subquery()
    )
    last = func.coalesce(letters.c.metadata_id, of_manifest)
    columns = (run.c.id, run.c.failure_exception, run.c.failure_junction, run.c.failure_reason)
    source = letters.join(run, run.c.id == last).outerjoin(entry, entry.c.external_id == run.c.external_id)
    return select(letters.c.place, *columns, entry.c.input.label("entry_input")).select_from(source)


@cache
def _select_failed_inputs(dialect: str) -> Select[*tuple[Any, ...]]:
    """Select the input from the entry: the run may have none, or a truncated one."""
    t, wanted = tables_for(dialect), ids_of(dialect)
    return (
        select(wanted.c.id, t.work_queue.c.input)
        .select_from(wanted.join(t.manifest, t.manifest.c.id == wanted.c.id))
        .join(t.metadata, t.metadata.c.id == t.manifest.c.failed_metadata_id)
        .join(t.work_queue, t.work_queue.c.external_id == t.metadata.c.external_id)
    )
