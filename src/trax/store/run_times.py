"""Load the timestamps of ended runs, for telemetry: wait, pickup and duration by the database clock."""

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
    """The timestamps of one run, and of its entry if that still refers to this run."""

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
        """From admission to start; None without an entry, or if the entry refers to a later run."""
        return _seconds(self.created_at, self.started_at) if self.queued_at else None

    @property
    def wait_seconds(self) -> float | None:
        """From enqueue, or from the end of its delay, to the start."""
        since = self.queued_at and max(self.queued_at, self.delayed_until or self.queued_at)
        return _seconds(since, self.started_at)

    @property
    def is_dead_lettered(self) -> bool:
        """Whether its entry became a dead letter. An entry that is retried no longer refers to this run."""
        return self.state == State.FAILED and self.manifest_id is None and self.queued_at is not None


def load_run_times(connection: Connection, ids: Iterable[int]) -> list[RunTimes]:
    """Load the timestamps of the runs that exist, in any order."""
    rows = connection.execute(_select_run_times(connection.dialect.name), {"ids": id_document(ids)})
    return [RunTimes(*row) for row in rows]


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else max(0.0, (end - begin).total_seconds())


@cache
def _select_run_times(dialect: str) -> Select[Any]:
    t = tables_for(dialect)
    ids = ids_of(dialect)
    run, entry, group = t.metadata, t.work_queue, t.manifest_group
    is_own_entry = (entry.c.external_id == run.c.external_id) & (entry.c.metadata_id == run.c.id)
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
        .join(ids, ids.c.id == run.c.id)
        .outerjoin(group, group.c.id == run.c.group_id)
        .outerjoin(entry, is_own_entry)
    )
