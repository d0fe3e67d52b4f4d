"""Delete old runs and their queue entries in batches (metadata cleanup)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, null, select, update

from trax.store.dialect import document, id_document, ids_of, rows_of
from trax.store.pipeline import run_together
from trax.store.schema import tables_for
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Delete, Select, Update

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DeletedRuns(NamedTuple):
    """How many runs were deleted per train, and where the next batch begins."""

    by_train: Counter[str]
    resume_at: dict[str, datetime]
    """When the last deleted run of each train ended."""


def delete_ended(
    connection: Connection,
    *,
    trains: Iterable[str],
    ended_before: datetime,
    limit: int | None,
    resume_at: Mapping[str, datetime],
) -> DeletedRuns:
    """Delete ended runs of these trains, up to `limit`, from where the last batch has left off.

    Without `resume_at`, each batch would read again what the batches before it have deleted: PostgreSQL keeps
    dead rows in the index until a vacuum.

    A run that has not ended has no `ended_at` and never matches. Log lines and entries are deleted with their
    run; the references of child runs and dead letters are set to NULL.
    """
    dialect = connection.dialect.name
    # The train whose last batch ended earliest comes first; otherwise a busy train would use all batches.
    in_turn = sorted(trains, key=lambda train: (resume_at.get(train, BEGINNING), train))
    rows = _load_expired(connection, in_turn, ended_before, limit, resume_at)
    if rows:
        runs = document({"id": row.id, "entry_id": row.entry_id} for row in rows)
        ids = id_document(row.id for row in rows)
        run_together(
            connection,
            (_delete_entries(dialect), {"runs": runs}),
            *((statement, {"ids": ids}) for statement in _delete_with_references(dialect)),
        )
    last = {row.train: row.ended_at for row in rows}
    return DeletedRuns(Counter(row.train for row in rows), {**resume_at, **last})


def _load_expired(
    connection: Connection,
    trains: Sequence[str],
    before: datetime,
    limit: int | None,
    resume_at: Mapping[str, datetime],
) -> list[Any]:
    """Load the oldest runs, train by train, up to `limit`.

    One query per train reads only its part of the index. A single query over all trains makes PostgreSQL
    read the whole history.
    """
    rows: list[Any] = []
    for train in trains:
        remaining = None if limit is None else limit - len(rows)
        if remaining == 0:
            break
        query = select_ended(connection.dialect.name).limit(remaining)
        parameters = {"train": train, "since": resume_at.get(train, BEGINNING), "before": before}
        rows.extend(connection.execute(query, parameters).all())
    return rows


@cache
def select_ended(dialect: str) -> Select[Any, Any, Any, Any]:
    """Select the runs of one train that ended from `:since` until before `:before`, in the index's order."""
    metadata = tables_for(dialect).metadata
    return (
        select(metadata.c.id, metadata.c.entry_id, metadata.c.train, metadata.c.ended_at)
        .where(
            metadata.c.train == bindparam("train"),
            metadata.c.ended_at >= bindparam("since", type_=Utc),
            metadata.c.ended_at < bindparam("before", type_=Utc),
        )
        .order_by(metadata.c.ended_at)
    )


@cache
def _delete_entries(dialect: str) -> Delete:
    """Delete the entries whose last run is deleted. An entry that waits for a retry is kept."""
    queue = tables_for(dialect).work_queue
    runs = rows_of(dialect, "runs", {"id": BigId, "entry_id": BigId})
    is_last_run = (runs.c.entry_id == queue.c.id) & (runs.c.id == queue.c.metadata_id)
    return delete(queue).where(queue.c.id.in_(select(queue.c.id).join(runs, is_last_run)))


@cache
def _delete_with_references(dialect: str) -> Sequence[Delete | Update]:
    """Delete runs with their log lines, and clear the references to them."""
    t = tables_for(dialect)
    ids = select(ids_of(dialect).c.id)
    return (
        delete(t.log).where(t.log.c.metadata_id.in_(ids)),
        update(t.metadata).where(t.metadata.c.parent_id.in_(ids)).values(parent_id=null()),
        update(t.dead_letter)
        .where(t.dead_letter.c.retry_metadata_id.in_(ids))
        .values(retry_metadata_id=null()),
        delete(t.metadata).where(t.metadata.c.id.in_(ids)),
    )
