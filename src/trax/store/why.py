"""What is read to say why something does not run. Every answer is bounded, however much waits or runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import and_, func, select, text

from trax.store.claim import PENDING_HERE
from trax.store.dialect import among, id_document
from trax.store.gate import counted, first_in_order
from trax.store.schema import tables
from trax.store.schema.metadata import ACTIVE, COUNTED
from trax.store.schema.work_queue import QUEUED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, TextClause

SHOWN: Final = 10
"""How many ids are named at the most."""


class Occupant(NamedTuple):
    """What of a manifest waits or goes on."""

    entry_ids: tuple[int, ...]
    metadata_ids: tuple[int, ...]
    dead_letter_ids: tuple[int, ...]


def occupants(connection: Connection, manifest_id: int) -> Occupant:
    t = tables(connection)
    conditions = (
        (t.work_queue, QUEUED),
        (t.metadata, ACTIVE),
        (t.dead_letter, "status = 'awaiting_intervention'"),
    )
    return Occupant(
        *(
            _ids(connection, table.c.id, table.c.manifest_id == manifest_id, text(condition))
            for table, condition in conditions
        )
    )


def holders(connection: Connection, group_id: int | None = None) -> tuple[int, ...]:
    """Runs that occupy a place: of a group, or of all."""
    metadata = tables(connection).metadata
    of_group = () if group_id is None else (metadata.c.group_id == group_id,)
    return _ids(connection, metadata.c.id, text(COUNTED), *of_group)


def occupancy(connection: Connection) -> dict[int | None, int]:
    """How many runs occupy a place, by group, whether anybody waits at the gate or not."""
    metadata = tables(connection).metadata
    query = select(metadata.c.group_id, func.count()).where(text(COUNTED)).group_by(metadata.c.group_id)
    return counted([tuple(row) for row in connection.execute(query)])


class InLine(NamedTuple):
    """An entry, and what its place in line follows from."""

    group_priority: int
    priority: int
    created_at: datetime
    id: int
    group_id: int | None

    @property
    def rank(self) -> tuple[int, int, datetime, int]:
        return -self.group_priority, -self.priority, self.created_at, self.id


def in_line(connection: Connection, entry_id: int) -> InLine | None:
    queue = tables(connection).work_queue
    columns = [queue.c[name] for name in InLine._fields]
    row = connection.execute(select(*columns).where(queue.c.id == entry_id)).one_or_none()
    return InLine(*row) if row else None


def ahead_of(connection: Connection, it: InLine, *, most: int) -> list[InLine]:
    """Who comes before this entry, of the first `most` in order.

    The head of the queue is read as it is, and compared here: asking the database for what comes before would
    have it look through all that comes after, too.
    """
    rows = connection.execute(first_in_order(connection.dialect.name, InLine._fields), {"most": most})
    return [one for one in (InLine(*row) for row in rows) if one.rank < it.rank]


def slots_taken(connection: Connection, worker_ids: Sequence[int], *, most: int) -> int:
    """How many slots these workers' runs fill, with those that wait for a worker; not counted past `most`."""
    metadata = tables(connection).metadata
    is_theirs = and_(text("state = 'in_progress'"), among(connection, metadata.c.worker_id))
    running = _counted(connection, metadata.c.id, is_theirs, most=most, ids=worker_ids)
    return running + _counted(connection, metadata.c.id, text(PENDING_HERE), most=most)


def _counted(
    connection: Connection,
    column: ColumnElement[int],
    condition: ColumnElement[bool] | TextClause,
    *,
    most: int,
    ids: Sequence[int] = (),
) -> int:
    some = select(column).where(condition).limit(most).subquery("some")
    given = {"ids": id_document(ids)} if ids else {}
    return connection.execute(select(func.count()).select_from(some), given).scalar_one()


def _ids(
    connection: Connection, column: ColumnElement[int], *conditions: ColumnElement[bool] | TextClause
) -> tuple[int, ...]:
    """Some of them, sorted here: an ORDER BY could lead the planner through the whole history instead."""
    query = select(column).where(*conditions).limit(SHOWN)
    return tuple(sorted(connection.execute(query).scalars()))
