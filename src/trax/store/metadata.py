"""The rows of every attempt."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, func, insert, literal, select, update

from trax.records.metadata import Metadata
from trax.records.states import State
from trax.store.dialect import document, rows_of
from trax.store.json import parsed
from trax.store.schema import tables, tables_for
from trax.store.text import storable
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select, Update

    from trax.records.metadata import Ending, NewRun

WRITTEN: Final = ("output", "failure_junction", "failure_exception", "failure_reason", "stack_trace")


def begin(connection: Connection, run: NewRun, *, now: datetime) -> int:
    """Record a run that begins here and now. Returns its id."""
    metadata = tables(connection).metadata
    values = asdict(run) | {"state": State.IN_PROGRESS.value, "created_at": now, "started_at": now}
    return connection.execute(insert(metadata).values(values).returning(metadata.c.id)).scalar_one()


def finish(connection: Connection, endings: Sequence[Ending], *, now: datetime) -> set[int]:
    """End runs, many at once. Returns the ids that were still ours to end.

    A run that somebody else has ended meanwhile (its worker was thought lost) stays as it is.
    """
    rows = [_row(ending) for ending in endings]
    ended = connection.execute(_finish(connection.dialect.name), {"endings": document(rows), "now": now})
    return set(ended.scalars())


def get(connection: Connection, metadata_id: int) -> Metadata | None:
    metadata = tables(connection).metadata
    row = connection.execute(_records(connection).where(metadata.c.id == metadata_id)).one_or_none()
    return _record(row) if row else None


def listed(
    connection: Connection,
    *,
    state: State | None = None,
    train: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[Metadata]:
    """Runs, newest first; `before` is the id of the last one already seen."""
    metadata = tables(connection).metadata
    wanted = {metadata.c.state: state, metadata.c.train: train}
    query = _records(connection).order_by(metadata.c.id.desc()).limit(limit)
    query = query.where(*(column == value for column, value in wanted.items() if value is not None))
    if before is not None:
        query = query.where(metadata.c.id < before)
    return [_record(row) for row in connection.execute(query)]


def _row(ending: Ending) -> dict[str, Any]:
    row = asdict(ending)
    return {name: storable(value) if isinstance(value, str) else value for name, value in row.items()}


@cache
def _finish(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    kinds = {"metadata_id": BigId, "worker_id": BigId, "state": metadata.c.state.type}
    given = rows_of(dialect, "endings", kinds | {name: metadata.c[name].type for name in WRITTEN})
    # Opaque on purpose: told plainly, the planner expects one running row and walks the document for each.
    still_ours = func.coalesce(
        (metadata.c.state == literal(State.IN_PROGRESS.value, literal_execute=True))
        & metadata.c.worker_id.is_not_distinct_from(given.c.worker_id),
        False,
    )
    return (
        update(metadata)
        .where(metadata.c.id == given.c.metadata_id, still_ours)
        .values(
            state=given.c.state,
            ended_at=bindparam("now", type_=Utc),
            current_junction=None,
            junction_started_at=None,
            **{name: given.c[name] for name in WRITTEN},
        )
        .returning(metadata.c.id)
    )


def _records(connection: Connection) -> Select[Any]:
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


def _record(row: Row[Any]) -> Metadata:
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
    )
