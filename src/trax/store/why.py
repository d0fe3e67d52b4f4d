"""What is read to say why something does not run. Every answer is bounded, however much waits or runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, func, select, text

from trax.store.claim import PENDING_HERE
from trax.store.dialect import among, id_document
from trax.store.gate import counted, first_in_order
from trax.store.schema import tables
from trax.store.schema.metadata import ACTIVE, COUNTED
from trax.store.schema.work_queue import QUEUED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Select, Table, TextClause

FAILURES_READ: Final = 1_000
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


def slots_taken(
    connection: Connection, worker_ids: Sequence[int], *, most: int, waiting: Iterable[str] = ()
) -> int:
    """How many slots these workers' runs fill; not counted past `most`.

    Runs of the trains in `waiting` that wait for a worker are about to fill one, too.
    """
    metadata = tables(connection).metadata
    is_theirs = and_(text("state = 'in_progress'"), among(connection, metadata.c.worker_id))
    running = _counted(connection, metadata.c.id, is_theirs, most=most, ids=worker_ids)
    if not (trains := sorted(waiting)):
        return running
    awaited = and_(text(PENDING_HERE), metadata.c.train.in_(trains))
    return running + _counted(connection, metadata.c.id, awaited, most=most)


class EntryFacts(NamedTuple):
    """What the record of an entry does not tell: which try it is, and what it waits for outside the gate."""

    attempt: int
    parked: str | None


def facts(connection: Connection, entry_id: int) -> EntryFacts:
    queue = tables(connection).work_queue
    row = connection.execute(select(queue.c.attempt, queue.c.parked).where(queue.c.id == entry_id)).one()
    return EntryFacts(*row)


def last_failure(connection: Connection, external_id: str) -> str | None:
    """What the last run of an entry failed with."""
    run = tables(connection).metadata
    query = (
        select(run.c.failure_exception, run.c.failure_reason)
        .where(run.c.id.in_(_runs_of(run, external_id)), text("state = 'failed'"))
        .order_by(run.c.id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return f"{row.failure_exception}: {row.failure_reason}" if row else None


def entry_named(connection: Connection, external_id: str) -> int | None:
    queue = tables(connection).work_queue
    return connection.execute(select(queue.c.id).where(queue.c.external_id == external_id)).scalar()


def run_named(connection: Connection, external_id: str) -> int | None:
    """A run that came from no entry: of those that go on or failed, since nothing is indexed by name."""
    run = tables(connection).metadata
    query = select(run.c.id).where(text(ACTIVE), run.c.external_id == external_id)
    return connection.execute(query.limit(1)).scalar()


def is_handed_over(connection: Connection, metadata_id: int) -> bool:
    """Whether somebody has taken this run to execute it."""
    run = tables(connection).metadata
    query = select(run.c.submitted_at.is_not(None)).where(run.c.id == metadata_id)
    return bool(connection.execute(query).scalar())


def _runs_of(run: Table, external_id: str) -> Select[Any]:
    """Among the latest failures, those of one entry: nothing is indexed by the name they share."""
    newest = select(run.c.id).where(text("state = 'failed'")).order_by(run.c.id.desc()).limit(FAILURES_READ)
    some = newest.subquery("newest")
    return select(some.c.id).join(run, run.c.id == some.c.id).where(run.c.external_id == external_id)


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
