"""One run, taken up by its id: the step from a submitter to whoever executes what it was handed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select, text, update

from trax.records.states import State
from trax.store.claim import Claimed
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection


def train_of(connection: Connection, metadata_id: int) -> str | None:
    """Which train a run is of; None when there is no such run."""
    metadata = tables(connection).metadata
    return connection.execute(select(metadata.c.train).where(metadata.c.id == metadata_id)).scalar()


def take_up(
    connection: Connection, metadata_id: int, *, worker_id: int, host: str, now: datetime
) -> Claimed | None:
    """Move a pending run to this worker; None when it is not pending any more: somebody else has it."""
    t = tables(connection)
    statement = (
        update(t.metadata)
        .where(t.metadata.c.id == metadata_id, text("state = 'pending'"))
        .values(state=State.IN_PROGRESS, worker_id=worker_id, host=host, started_at=now)
        .returning(t.metadata)
    )
    row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        return None
    found = select(t.manifest.c.external_id).where(t.manifest.c.id == row["manifest_id"])
    own: dict[str, Any] = {"metadata_id": row["id"], "manifest": connection.execute(found).scalar()}
    return Claimed(**own, **{name: row[name] for name in Claimed._fields if name in row})
