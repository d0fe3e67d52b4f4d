"""A few numbers that differ when something has changed, in one statement that reads little.

It is asked every second or two while anybody watches, however much there is: each part looks at the end of
an index, or at a bounded number of rows that wait or run. More of those than that, and one comes or goes all
the time, which the highest id tells as well.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text, true

from trax.records.pulse import Pulse, Tag
from trax.store.schema import tables
from trax.store.schema.work_queue import DELAYED, PARKED, READY

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, Connection, FromClause, Subquery, Table, TextClause

LOOKED_AT: Final = 500


def read(connection: Connection) -> Pulse:
    t = tables(connection)
    worker, setting = t.worker.c, t.setting.c
    parts: dict[str, tuple[Tag, Subquery]] = {
        "runs": (Tag.EXECUTIONS, _latest(t.metadata)),
        "pending": (Tag.EXECUTIONS, _some(t.metadata, "state = 'pending'")),
        "running": (Tag.EXECUTIONS, _running(t.metadata)),
        "entries": (Tag.QUEUE, _latest(t.work_queue)),
        "ready": (Tag.QUEUE, _some(t.work_queue, READY)),
        "delayed": (Tag.QUEUE, _some(t.work_queue, DELAYED)),
        "parked": (Tag.QUEUE, _some(t.work_queue, PARKED)),
        "manifests": (Tag.MANIFESTS, _latest(t.manifest)),
        "due": (Tag.MANIFESTS, _one(func.min(t.manifest.c.next_due_at), text("next_due_at IS NOT NULL"))),
        "letters": (Tag.DEAD_LETTERS, _latest(t.dead_letter)),
        "awaiting": (Tag.DEAD_LETTERS, _some(t.dead_letter, "status = 'awaiting_intervention'")),
        "settings": (Tag.SETTINGS, select(func.count(), func.max(setting.updated_at)).subquery()),
        "workers": (Tag.WORKERS, _all(worker.id, worker.concurrency)),
        "actions": (Tag.MANIFESTS, _latest(t.audit)),  # switching a manifest off leaves no other mark
        "audit": (Tag.AUDIT, _latest(t.audit)),
    }
    columns = [
        column.label(f"{name}_{at}") for name, (_, part) in parts.items() for at, column in enumerate(part.c)
    ]
    first, *others = (part for _, part in parts.values())
    together: FromClause = reduce(lambda left, right: left.join(right, true()), others, first)
    row = iter(connection.execute(select(*columns).select_from(together)).one())
    marks: dict[Tag, tuple[Any, ...]] = {}
    for tag, part in parts.values():
        marks[tag] = (*marks.get(tag, ()), *(next(row) for _ in part.c))
    return marks


def _latest(table: Table) -> Subquery:
    return _one(func.max(table.c.id))


def _one(end: ColumnElement[Any], *conditions: TextClause) -> Subquery:
    """The end of an index. SQLite looks there only for a value of its own, and else walks all of it."""
    return select(select(end).where(*conditions).scalar_subquery().label("end")).subquery()


def _all(*columns: Column[Any]) -> Subquery:
    """Of a small table: how many rows, and what they add up to."""
    return select(func.count(), *map(func.sum, columns)).subquery()


def _some(table: Table, condition: str) -> Subquery:
    """How many there are, and which: their ids add up to something else when one has gone and one come."""
    some = select(table.c.id).select_from(table).where(text(condition)).limit(LOOKED_AT).subquery()
    return select(func.count().label("number"), func.sum(some.c.id).label("sum")).subquery()


def _running(metadata: Table) -> Subquery:
    """What runs, and how far it has come."""
    column = metadata.c
    told = (column.id, column.progress, column.junction_started_at, column.cancel_requested)
    some = select(*told).where(text("state = 'in_progress'")).limit(LOOKED_AT).subquery()
    asked = func.count().filter(some.c.cancel_requested)
    return select(
        func.count().label("number"),
        func.sum(some.c.id).label("sum"),
        func.sum(some.c.progress).label("progress"),
        func.max(some.c.junction_started_at).label("junction"),
        asked.label("asked"),
    ).subquery()
