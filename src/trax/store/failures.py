"""What went wrong last: with what gave up, and what its run was given."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, select

from trax.records.fingerprint import fingerprint
from trax.records.states import State
from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.schema import tables_for
from trax.store.text import storable
from trax.store.types import BigId, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Row, Select

CHARACTERS: Final = 1_000
"""How much of a message a letter repeats; the run's own record has the whole."""


def with_failures(connection: Connection, letters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same letters with their last failure, its fingerprint, and the input of the run that failed.

    A manifest's row says which run that was, as `last_metadata_id`. Letters are rare, so this may ask.
    """
    asked = [
        {
            "place": place,
            "manifest_id": letter["manifest_id"] if letter["retry_count"] else None,
            "metadata_id": letter.get("last_metadata_id"),
        }
        for place, letter in enumerate(letters)
    ]
    rows = connection.execute(_last_failures(connection.dialect.name), {"letters": document(asked)})
    found = {row.place: row for row in rows}
    return [_with_failure(letter, found.get(place)) for place, letter in enumerate(letters)]


def failed_inputs(connection: Connection, manifest_ids: Sequence[int]) -> dict[int, str | None]:
    """The input of the run of each manifest that failed last, by manifest id, as JSON text."""
    if not manifest_ids:
        return {}
    rows = connection.execute(_failed_inputs(connection.dialect.name), {"ids": id_document(manifest_ids)})
    return {row.id: row.input for row in rows}


def _with_failure(letter: Mapping[str, Any], run: Row[Any] | None) -> dict[str, Any]:
    """What never ran has failed for the reason of its letter.

    The run's entry has the whole input, whatever is kept of it in the record; without it the letter's stays.
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
        "failure_reason": storable(reason[:CHARACTERS]) if reason else None,
        "fingerprint": fingerprint(letter["train"], exception, junction, reason or letter["reason"]),
    }


@cache
def _last_failures(dialect: str) -> Select[*tuple[Any, ...]]:
    run, entry = tables_for(dialect).metadata, tables_for(dialect).work_queue
    kinds = {"place": Integer(), "manifest_id": BigId, "metadata_id": BigId}
    given = rows_of(dialect, "letters", kinds)
    failed = run.alias("failed")
    of_manifest = (
        select(func.max(failed.c.id))
        .where(failed.c.manifest_id == given.c.manifest_id, failed.c.state == word(State.FAILED))
        .scalar_subquery()
    )
    last = func.coalesce(given.c.metadata_id, of_manifest)
    told = (run.c.id, run.c.failure_exception, run.c.failure_junction, run.c.failure_reason)
    source = given.join(run, run.c.id == last).outerjoin(entry, entry.c.external_id == run.c.external_id)
    return select(given.c.place, *told, entry.c.input.label("entry_input")).select_from(source)


@cache
def _failed_inputs(dialect: str) -> Select[*tuple[Any, ...]]:
    """From its entry, which keeps the whole of it: the record may be without, or have it cut."""
    t, given = tables_for(dialect), ids_of(dialect)
    return (
        select(given.c.id, t.work_queue.c.input)
        .select_from(given.join(t.manifest, t.manifest.c.id == given.c.id))
        .join(t.metadata, t.metadata.c.id == t.manifest.c.failed_metadata_id)
        .join(t.work_queue, t.work_queue.c.external_id == t.metadata.c.external_id)
    )
