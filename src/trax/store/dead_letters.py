"""Read, insert, resolve and purge dead letters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, delete, insert, select, text, update

from trax.records.dead_letter import DeadLetter
from trax.records.states import DeadLetterStatus
from trax.store.dialect import among, document, id_document, rows_of
from trax.store.failures import add_failures
from trax.store.json import parse_json
from trax.store.lists import shorten
from trax.store.names import manifest_id
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert, Row, Select, Table

AWAITING = "status = 'awaiting_intervention'"
INSERT_COLUMNS = (
    "manifest_id",
    "train",
    "group_id",
    "priority",
    "input",
    "retry",
    "timeout_seconds",
    "unique_key",
    "reason",
    "retry_count",
    "last_metadata_id",
    "failure_exception",
    "failure_junction",
    "failure_reason",
    "fingerprint",
)


class LetterSelection(NamedTuple):
    """Which dead letters: by ids, or by fingerprint (the oldest `limit`); without either, all."""

    ids: Sequence[int] | None = None
    fingerprint: str | None = None
    limit: int | None = None


def build_from_entry(entry: Row[Any], reason: str, *, retry_count: int) -> dict[str, Any]:
    """Build the letter of a job without a manifest, with all that is needed to enqueue it again."""
    copied = ("train", "group_id", "priority", "input", "retry", "timeout_seconds", "unique_key")
    same = {name: getattr(entry, name) for name in copied}
    own = {"manifest_id": None, "last_metadata_id": entry.metadata_id}
    return {**same, **own, "reason": reason, "retry_count": retry_count}


def add(connection: Connection, letters: Sequence[dict[str, Any]], *, now: datetime) -> list[int]:
    """Insert dead letters, each with its last failure; returns their ids."""
    if not letters:
        return []
    rows: list[dict[str, Any]] = [
        letter | {"reason": storable(letter["reason"])} for letter in add_failures(connection, letters)
    ]
    inserted = connection.execute(_add(connection.dialect.name), {"letters": document(rows), "now": now})
    return list(inserted.scalars())


def attach(connection: Connection, dead_letter_id: int, entry_id: int) -> None:
    """Link a requeued letter to an existing entry, and to the run of that entry."""
    t = tables(connection)
    queue, letter = t.work_queue, t.dead_letter
    is_unlinked = (text("status = 'queued'"), queue.c.dead_letter_id.is_(None))
    connection.execute(
        update(queue).where(queue.c.id == entry_id, *is_unlinked).values(dead_letter_id=dead_letter_id)
    )
    run_id = select(queue.c.metadata_id).where(queue.c.id == entry_id).scalar_subquery()
    connection.execute(update(letter).where(letter.c.id == dead_letter_id).values(retry_metadata_id=run_id))


def get(connection: Connection, dead_letter_id: int) -> DeadLetter | None:
    letter = tables(connection).dead_letter
    row = connection.execute(_records(connection).where(letter.c.id == dead_letter_id)).one_or_none()
    return _record(row) if row else None


def load_by_ids(connection: Connection, ids: Sequence[int], *, brief: bool = False) -> dict[int, DeadLetter]:
    """Load letters by id, as a dictionary."""
    records = shorten(_records(connection)) if brief else _records(connection)
    query = records.where(among(connection, tables(connection).dead_letter.c.id))
    return {row.id: _record(row) for row in connection.execute(query, {"ids": id_document(ids)})}


def load_list(
    connection: Connection,
    *,
    status: DeadLetterStatus | None = None,
    manifest: str | None = None,
    fingerprint: str | None = None,
    before: int | None = None,
    limit: int = 50,
    brief: bool = False,
) -> list[DeadLetter]:
    """Dead letters, newest first; `before` is the id of the last one already read."""
    letter = tables(connection).dead_letter
    records = shorten(_records(connection)) if brief else _records(connection)
    query = records.order_by(letter.c.id.desc()).limit(limit)
    if status is not None:
        query = query.where(letter.c.status == sql_literal(status))
    if fingerprint is not None:
        query = query.where(letter.c.fingerprint == fingerprint)
    if manifest is not None:
        query = query.where(letter.c.manifest_id == manifest_id(connection, manifest))
    if before is not None:
        query = query.where(letter.c.id < before)
    return [_record(row) for row in connection.execute(query)]


def resolve(
    connection: Connection,
    status: DeadLetterStatus,
    selection: LetterSelection,
    *,
    note: str | None,
    now: datetime,
) -> list[Row[Any]]:
    """Resolve the selected letters that still await intervention, and return them.

    Two operators may resolve the same letter: the update names the expected status, so only one gets the row.
    """
    letter = tables(connection).dead_letter
    statement = (
        update(letter)
        .where(text(AWAITING))
        .values(status=status, resolved_at=now, note=storable(note))
        .returning(letter)
    )
    parameters: dict[str, Any] = {}
    if selection.ids is not None:
        statement = statement.where(among(connection, letter.c.id))
        parameters["ids"] = id_document(selection.ids)
    if selection.fingerprint is not None:
        statement = statement.where(letter.c.id.in_(_select_same_failure(letter, selection)))
    return list(connection.execute(statement, parameters))


def _select_same_failure(letter: Table, selection: LetterSelection) -> Select[Any]:
    """Select awaiting letters with this fingerprint, oldest first."""
    other = letter.alias("other")
    awaiting = other.c.status == sql_literal(DeadLetterStatus.AWAITING_INTERVENTION)
    alike = select(other.c.id).where(awaiting, other.c.fingerprint == selection.fingerprint)
    return alike.order_by(other.c.id).limit(selection.limit)


def purge(connection: Connection, *, resolved_before: datetime) -> int:
    """Delete letters resolved before this time; letters that await intervention are never deleted."""
    letter = tables(connection).dead_letter
    return connection.execute(delete(letter).where(letter.c.resolved_at < resolved_before)).rowcount


@cache
def _add(dialect: str) -> Insert:
    letter = tables_for(dialect).dead_letter
    letters = rows_of(dialect, "letters", {name: letter.c[name].type for name in INSERT_COLUMNS})
    columns: dict[str, Any] = {name: letters.c[name] for name in INSERT_COLUMNS} | {
        "status": sql_literal(DeadLetterStatus.AWAITING_INTERVENTION),
        "dead_lettered_at": bindparam("now", type_=Utc),
    }
    return insert(letter).from_select(list(columns), select(*columns.values())).returning(letter.c.id)


def _records(connection: Connection) -> Select[Any]:
    t = tables(connection)
    return select(t.dead_letter, t.manifest.c.external_id.label("manifest")).outerjoin(
        t.manifest, t.manifest.c.id == t.dead_letter.c.manifest_id
    )


def _record(row: Row[Any]) -> DeadLetter:
    return DeadLetter(
        id=row.id,
        manifest=row.manifest,
        train=row.train,
        status=DeadLetterStatus(row.status),
        reason=row.reason,
        retry_count=row.retry_count,
        input=parse_json(row.input),
        dead_lettered_at=row.dead_lettered_at,
        resolved_at=row.resolved_at,
        note=row.note,
        retry_metadata_id=row.retry_metadata_id,
        last_metadata_id=row.last_metadata_id,
        failure_exception=row.failure_exception,
        failure_junction=row.failure_junction,
        failure_reason=row.failure_reason,
        fingerprint=row.fingerprint,
    )
