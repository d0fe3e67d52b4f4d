"""How long runs waited and took, by the database's clock: what is measured once they have ended."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import select

from trax.records.states import State
from trax.store.dialect import id_document, ids_of
from trax.store.schema import tables_for

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from sqlalchemy import Connection, Select


class RunTimes(NamedTuple):
    """The moments of one run, and of the entry it came from, if that is still about this run."""

    metadata_id: int
    train: str
    state: str
    attempt: int
    manifest_id: int | None
    group: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    queued_at: datetime | None
    delayed_until: datetime | None

    @property
    def duration_seconds(self) -> float | None:
        return _seconds(self.started_at, self.ended_at)

    @property
    def pickup_seconds(self) -> float | None:
        """From the gate to the start; None for a run that met no gate, or whose entry has moved on."""
        return _seconds(self.created_at, self.started_at) if self.queued_at else None

    @property
    def wait_seconds(self) -> float | None:
        """From the moment it was queued, or until which it was put off, to the start."""
        since = self.queued_at and max(self.queued_at, self.delayed_until or self.queued_at)
        return _seconds(since, self.started_at)

    @property
    def gave_up(self) -> bool:
        """Whether its entry got a dead letter: one that is tried again has left this run behind."""
        return self.state == State.FAILED and self.manifest_id is None and self.queued_at is not None


def of_runs(connection: Connection, ids: Iterable[int]) -> list[RunTimes]:
    """Those of these runs that are there, in any order."""
    rows = connection.execute(_of_runs(connection.dialect.name), {"ids": id_document(ids)})
    return [RunTimes(*row) for row in rows]


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())


@cache
def _of_runs(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    given = ids_of(dialect)
    run, entry, group = t.metadata, t.work_queue, t.manifest_group
    own = (entry.c.external_id == run.c.external_id) & (entry.c.metadata_id == run.c.id)
    return (
        select(
            *(run.c[name] for name in ("id", *RunTimes._fields[1:5])),
            group.c.name,
            run.c.created_at,
            run.c.started_at,
            run.c.ended_at,
            entry.c.created_at,
            entry.c.scheduled_at,
        )
        .join(given, given.c.id == run.c.id)
        .outerjoin(group, group.c.id == run.c.group_id)
        .outerjoin(entry, own)
    )
