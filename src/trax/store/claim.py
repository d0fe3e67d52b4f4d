"""Taking pending runs: the step from the gate to a worker."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import bindparam, literal, select, text, update

from trax.records.states import State
from trax.store.dialect import among, document, id_document, rows_of
from trax.store.schema import tables, tables_for
from trax.store.types import BigId, Utc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection, Select, Update

PENDING_HERE = "state = 'pending' AND submitter = 'local'"


class Claimed(NamedTuple):
    """A run that this worker holds. `input` is JSON text."""

    metadata_id: int
    external_id: str
    train: str
    input: str | None
    manifest_id: int | None
    attempt: int
    priority: int
    scheduled_for: datetime | None
    timeout_seconds: float | None
    manifest: str | None = None


def claim(
    connection: Connection, *, worker_id: int, host: str, slots: int, trains: Iterable[str], now: datetime
) -> list[Claimed]:
    """Move up to `slots` pending runs to this worker, highest priority first, the older of equals first.

    Two workers may want the same row. The loser finds it locked or already taken, and gets another one
    instead of waiting.
    """
    given = {
        "trains": document({"name": name} for name in trains),
        "slots": slots,
        "worker_id": worker_id,
        "host": host,
        "now": now,
    }
    rows = [Claimed(*row) for row in connection.execute(_claim(connection.dialect.name), given)]
    names = _manifests_of(connection, {run.manifest_id for run in rows if run.manifest_id is not None})
    runs = [run._replace(manifest=names.get(run.manifest_id)) for run in rows]
    return sorted(runs, key=lambda run: (-run.priority, run.metadata_id))


def _manifests_of(connection: Connection, ids: set[int]) -> dict[int | None, str]:
    if not ids:
        return {}
    manifest = tables(connection).manifest
    query = select(manifest.c.id, manifest.c.external_id).where(among(connection, manifest.c.id))
    return {row.id: row.external_id for row in connection.execute(query, {"ids": id_document(ids)})}


def to_cancel(connection: Connection, worker_id: int) -> list[int]:
    """The runs of this worker that somebody wants stopped."""
    metadata = tables(connection).metadata
    query = select(metadata.c.id).where(
        text("state = 'in_progress'"), metadata.c.worker_id == worker_id, metadata.c.cancel_requested
    )
    return list(connection.execute(query).scalars())


@cache
def _wanted(dialect: str) -> Select[Any]:
    metadata = tables_for(dialect).metadata
    known = rows_of(dialect, "trains", {"name": metadata.c.train.type})
    return (
        select(metadata.c.id)
        .where(text(PENDING_HERE), metadata.c.train.in_(select(known.c.name)))
        .order_by(metadata.c.priority.desc(), metadata.c.id)
        .limit(bindparam("slots"))
        .with_for_update(skip_locked=True)
    )


@cache
def _claim(dialect: str) -> Update:
    metadata = tables_for(dialect).metadata
    held = [metadata.c[name] for name in ("id", *Claimed._fields[1:-1])]
    return (
        update(metadata)
        .where(metadata.c.id.in_(_wanted(dialect)))
        .values(
            state=literal(State.IN_PROGRESS.value, literal_execute=True),
            worker_id=bindparam("worker_id", type_=BigId),
            host=bindparam("host"),
            started_at=bindparam("now", type_=Utc),
        )
        .returning(*held)
    )
