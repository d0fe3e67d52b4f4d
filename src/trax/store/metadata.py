"""The rows of every attempt."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, func, insert, select, update

from trax.records.junction_timing import timings_from_json
from trax.records.metadata import Metadata
from trax.records.states import State
from trax.store.announcing import notifications, send_last
from trax.store.dialect import among, id_document, moment, quick_document, rows_of
from trax.store.json import parsed
from trax.store.pipeline import commit_together, run_together
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import BigId, Utc, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Insert, Row, Select, Update

    from trax.records.metadata import Ending, NewRun
    from trax.store.pipeline import Rows, Step

OF_SUCCESS: Final = ("output", "junctions")
OF_FAILURE: Final = ("failure_junction", "failure_exception", "failure_reason", "stack_trace")
WRITTEN: Final = (*OF_SUCCESS, *OF_FAILURE)


def begin(connection: Connection, run: NewRun, *, now: datetime) -> int:
    """Record a run that begins here and now. Returns its id."""
    metadata = tables(connection).metadata
    values = asdict(run) | {"state": State.IN_PROGRESS.value, "created_at": now, "started_at": now}
    return connection.execute(insert(metadata).values(values).returning(metadata.c.id)).scalar_one()


def add_completed(connection: Connection, *, external_id: str, train: str, now: datetime) -> None:
    """Record, in one go, a cycle of an administrative train that is over."""
    given = {"external_id": external_id, "train": train, "now": now}
    adding: Step = (_add_completed(connection.dialect.name), given)
    if not send_last(connection, adding):
        run_together(connection, adding)


def finish(connection: Connection, endings: Sequence[Ending], *, now: datetime) -> set[int]:
    """End runs, many at once. Returns the ids that were still ours to end.

    A run that somebody else has ended meanwhile (its worker was thought lost) stays as it is.
    """
    return finished(run_together(connection, finishing(connection, endings, now=now))[0])


def finish_and_commit(connection: Connection, endings: Sequence[Ending], *, now: datetime | None) -> set[int]:
    """The same for runs that nothing else follows from: the commit goes along in the same trip."""
    step = finishing(connection, endings, now=now)
    return finished(commit_together(connection, step, *notifications(connection))[0])


def written_before(connection: Connection, endings: Sequence[Ending]) -> set[int]:
    """Which of these runs their worker has ended just so already: only its answer was lost on the way.

    Whoever takes a run from its worker ends it in words of their own.
    """
    metadata = tables(connection).metadata
    query = select(metadata.c.id, metadata.c.worker_id, metadata.c.state, metadata.c.failure_exception)
    ids = id_document(one.metadata_id for one in endings)
    found = connection.execute(query.where(among(connection, metadata.c.id)), {"ids": ids})
    said = {row.id: tuple(row)[1:] for row in found}
    return {
        one.metadata_id
        for one in endings
        if said.get(one.metadata_id) == (one.worker_id, one.state, storable(one.failure_exception))
    }


def finishing(connection: Connection, endings: Sequence[Ending], *, now: datetime | None) -> Step:
    dialect = connection.dialect.name
    return _finish(dialect), {"endings": quick_document(dialect, map(_row, endings)), "now": now}


def finished(rows: Rows) -> set[int]:
    return {row[0] for row in rows}


def get(connection: Connection, metadata_id: int) -> Metadata | None:
    metadata = tables(connection).metadata
    row = connection.execute(records(connection).where(metadata.c.id == metadata_id)).one_or_none()
    return record(row) if row else None


def of_ids(connection: Connection, ids: Sequence[int]) -> dict[int, Metadata]:
    """These runs, by their ids."""
    if not ids:
        return {}
    query = records(connection).where(among(connection, tables(connection).metadata.c.id))
    return {row.id: record(row) for row in connection.execute(query, {"ids": id_document(ids)})}


def _row(ending: Ending) -> dict[str, Any]:
    """What there is to write: what a document does not mention is null."""
    row: dict[str, Any] = {
        "metadata_id": ending.metadata_id,
        "worker_id": ending.worker_id,
        "state": ending.state,
    }
    for name in OF_SUCCESS if ending.state is State.COMPLETED else WRITTEN:
        value = getattr(ending, name)
        if value is not None:
            row[name] = storable(value)
    return row


@cache
def _add_completed(dialect: str) -> Insert:
    now = bindparam("now", type_=Utc)
    return insert(tables_for(dialect).metadata).values(
        external_id=bindparam("external_id"),
        train=bindparam("train"),
        state=word(State.COMPLETED),
        exempt=True,
        created_at=now,
        started_at=now,
        ended_at=now,
    )


@cache
def _finish(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    kinds = {"metadata_id": BigId, "worker_id": BigId, "state": metadata.c.state.type}
    given = rows_of(dialect, "endings", kinds | {name: metadata.c[name].type for name in WRITTEN})
    # Opaque on purpose: told plainly, the planner expects one running row and walks the document for each.
    still_ours = func.coalesce(
        (metadata.c.state == word(State.IN_PROGRESS))
        & metadata.c.worker_id.is_not_distinct_from(given.c.worker_id),
        False,
    )
    return (
        update(metadata)
        .where(metadata.c.id == given.c.metadata_id, still_ours)
        .values(
            state=given.c.state,
            ended_at=moment(dialect),
            current_junction=None,
            junction_started_at=None,
            **{name: given.c[name] for name in WRITTEN},
        )
        .returning(metadata.c.id)
    )


def records(connection: Connection) -> Select[Any]:
    t = tables(connection)
    return (
        select(
            t.metadata,
            t.manifest.c.external_id.label("manifest"),
            t.manifest_group.c.name.label("group_name"),
        )
        .select_from(t.metadata)
        .outerjoin(t.manifest, t.manifest.c.id == t.metadata.c.manifest_id)
        .outerjoin(t.manifest_group, t.manifest_group.c.id == t.metadata.c.group_id)
    )


def record(row: Row[Any]) -> Metadata:
    return Metadata(
        id=row.id,
        external_id=row.external_id,
        train=row.train,
        state=State(row.state),
        manifest=row.manifest,
        group=row.group_name,
        priority=row.priority,
        attempt=row.attempt,
        input=parsed(row.input),
        output=parsed(row.output),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        failure_junction=row.failure_junction,
        failure_exception=row.failure_exception,
        failure_reason=row.failure_reason,
        stack_trace=row.stack_trace,
        parent_id=row.parent_id,
        submitter=row.submitter,
        worker=row.worker_id,
        host=row.host,
        progress=row.progress,
        current_junction=row.current_junction,
        cancel_requested=row.cancel_requested,
        junction_started_at=row.junction_started_at,
        progress_message=row.progress_message,
        junctions=timings_from_json(row.junctions, row.started_at),
    )
