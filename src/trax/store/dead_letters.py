"""Dead letters (table `dead_letter`): insert, resolve, list, group and delete them; load their failures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from sqlalchemy import Integer, bindparam, case, delete, func, insert, literal, null, select, text, update

from trax.records.dead_letter import DeadLetter, DeadLetterGroup, fingerprint
from trax.records.states import DeadLetterStatus, State
from trax.store.dialect import among, document, documents, id_document, ids_of, rows_of
from trax.store.listing import RecordQuery, Search, equal_to, estimate_index_rows, manifest_id, shorten
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, Utc, parse_json, sql_literal, storable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Insert, Row, Select, Table

    from trax.records.nouns import LetterFilter


MAX_REASON_CHARACTERS: Final = 1_000
"""How much of a failure reason a letter keeps; the run has the whole."""


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
    ids: list[int] = []
    for letters_document in documents(rows):
        parameters = {"letters": letters_document, "now": now}
        ids += connection.execute(_add(connection.dialect.name), parameters).scalars()
    return ids


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
    A letter may be written after `now` was read; it is not resolved before that.
    """
    letter = tables(connection).dead_letter
    resolved_at = case((letter.c.dead_lettered_at > now, letter.c.dead_lettered_at), else_=literal(now, Utc))
    statement = (
        update(letter)
        .where(text(AWAITING))
        .values(status=status, resolved_at=resolved_at, note=storable(note))
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
    t = tables(connection)
    letter, queue = t.dead_letter, t.work_queue
    is_expired = letter.c.resolved_at < resolved_before
    referring = queue.c.dead_letter_id.in_(select(letter.c.id).where(is_expired))
    connection.execute(update(queue).where(referring).values(dead_letter_id=null()))
    return connection.execute(delete(letter).where(is_expired)).rowcount


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
    source = letters.join(run, run.c.id == last).outerjoin(entry, entry.c.id == run.c.entry_id)
    return select(letters.c.place, *columns, entry.c.input.label("entry_input")).select_from(source)


@cache
def _select_failed_inputs(dialect: str) -> Select[*tuple[Any, ...]]:
    """Select the input from the entry: the run may have none, or a truncated one."""
    t, wanted = tables_for(dialect), ids_of(dialect)
    return (
        select(wanted.c.id, t.work_queue.c.input)
        .select_from(wanted.join(t.manifest, t.manifest.c.id == wanted.c.id))
        .join(t.metadata, t.metadata.c.id == t.manifest.c.failed_metadata_id)
        .join(t.work_queue, t.work_queue.c.id == t.metadata.c.entry_id)
    )


def _search(connection: Connection, filters: LetterFilter) -> Search:
    letter, status = tables(connection).dead_letter, filters.get("status")
    is_awaiting = status == DeadLetterStatus.AWAITING_INTERVENTION
    search = Search(table=letter)
    if is_awaiting:
        total = partial(estimate_index_rows, connection, letter, "dead_letter_awaiting_idx", AWAITING)
        search = replace(search, indexed=(cast("ColumnElement[bool]", text(AWAITING)),), total=total)
    elif status is not None:
        search = replace(search, unindexed=(letter.c.status == sql_literal(DeadLetterStatus(status)),))
    if is_same := equal_to(letter, filters, "fingerprint"):
        others = (*search.unindexed, *is_same)
        search = search.narrow(*is_same) if is_awaiting else replace(search, unindexed=others)
    if (manifest := filters.get("manifest")) is not None:
        search = search.narrow(letter.c.manifest_id == manifest_id(connection, manifest))
    return search


LETTERS: Final = RecordQuery(search=_search, records=_records, record=_record)


MAX_LETTERS: Final = 50_000
"""How many awaiting letters are grouped, the newest first."""


def load_groups(connection: Connection, *, limit: int = 50, brief: bool = False) -> list[DeadLetterGroup]:
    """Groups of awaiting dead letters, the largest first."""
    rows = _count_by_fingerprint(connection, limit)
    ids = [row.last_id for row in rows] + [row.first_id for row in rows]
    letters = load_by_ids(connection, ids, brief=brief)
    return [
        DeadLetterGroup(
            fingerprint=row.fingerprint,
            train=letters[row.last_id].train,
            count=row.letters,
            first_at=letters[row.first_id].dead_lettered_at,
            last_at=letters[row.last_id].dead_lettered_at,
            sample=letters[row.last_id],
        )
        for row in rows
    ]


def _count_by_fingerprint(connection: Connection, limit: int) -> Sequence[Any]:
    letter = tables(connection).dead_letter
    awaiting = (
        select(letter.c.id, letter.c.fingerprint)
        .where(letter.c.status == sql_literal(DeadLetterStatus.AWAITING_INTERVENTION))
        .order_by(letter.c.id.desc())
        .limit(MAX_LETTERS)
        .subquery()
    )
    letters, last = func.count().label("letters"), func.max(awaiting.c.id).label("last_id")
    query = (
        select(awaiting.c.fingerprint, letters, func.min(awaiting.c.id).label("first_id"), last)
        .group_by(awaiting.c.fingerprint)
        .order_by(letters.desc(), last.desc())
        .limit(limit)
    )
    return connection.execute(query).all()


def count_by_manifest(connection: Connection) -> dict[str, int]:
    """How many dead letters each manifest has, by external id."""
    letter, manifest = tables(connection).dead_letter, tables(connection).manifest
    query = select(manifest.c.external_id, func.count()).join(letter, letter.c.manifest_id == manifest.c.id)
    return {name: count for name, count in connection.execute(query.group_by(manifest.c.external_id))}  # noqa: C416
