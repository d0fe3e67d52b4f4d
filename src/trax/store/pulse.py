"""Read change marks for live pages: numbers that differ when something has changed.

One statement, run every second or two while a live page is open. Each part reads the end of an index or a
bounded number of rows. With more rows than the bound, the highest id changes often enough.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, text, true

from trax.records.pulse import ChangeMarks, ChangeTag
from trax.store.schema import tables
from trax.store.schema.work_queue import DELAYED, PARKED, READY

if TYPE_CHECKING:
    from sqlalchemy import Column, ColumnElement, Connection, FromClause, Subquery, Table, TextClause

MAX_ROWS: Final = 500


def read_change_marks(connection: Connection) -> ChangeMarks:
    t = tables(connection)
    worker, setting = t.worker.c, t.setting.c
    parts: dict[str, tuple[ChangeTag, Subquery]] = {
        "runs": (ChangeTag.EXECUTIONS, _latest_id(t.metadata)),
        "pending": (ChangeTag.EXECUTIONS, _rows_mark(t.metadata, "state = 'pending'")),
        "running": (ChangeTag.EXECUTIONS, _progress_mark(t.metadata)),
        "entries": (ChangeTag.QUEUE, _latest_id(t.work_queue)),
        "ready": (ChangeTag.QUEUE, _rows_mark(t.work_queue, READY)),
        "delayed": (ChangeTag.QUEUE, _rows_mark(t.work_queue, DELAYED)),
        "parked": (ChangeTag.QUEUE, _rows_mark(t.work_queue, PARKED)),
        "manifests": (ChangeTag.MANIFESTS, _latest_id(t.manifest)),
        "due": (
            ChangeTag.MANIFESTS,
            _index_end(func.min(t.manifest.c.next_due_at), text("next_due_at IS NOT NULL")),
        ),
        "letters": (ChangeTag.DEAD_LETTERS, _latest_id(t.dead_letter)),
        "awaiting": (ChangeTag.DEAD_LETTERS, _rows_mark(t.dead_letter, "status = 'awaiting_intervention'")),
        "settings": (ChangeTag.SETTINGS, select(func.count(), func.max(setting.updated_at)).subquery()),
        "workers": (ChangeTag.WORKERS, _table_mark(worker.id, worker.concurrency)),
        "actions": (ChangeTag.MANIFESTS, _latest_id(t.audit)),  # disabling a manifest changes no other mark
        "audit": (ChangeTag.AUDIT, _latest_id(t.audit)),
    }
    columns = [
        column.label(f"{name}_{at}") for name, (_, part) in parts.items() for at, column in enumerate(part.c)
    ]
    first, *others = (part for _, part in parts.values())
    together: FromClause = reduce(lambda left, right: left.join(right, true()), others, first)
    row = iter(connection.execute(select(*columns).select_from(together)).one())
    marks: dict[ChangeTag, tuple[Any, ...]] = {}
    for tag, part in parts.values():
        marks[tag] = (*marks.get(tag, ()), *(next(row) for _ in part.c))
    return marks


def _latest_id(table: Table) -> Subquery:
    return _index_end(func.max(table.c.id))


def _index_end(end: ColumnElement[Any], *conditions: TextClause) -> Subquery:
    """Read the end of an index. SQLite needs a scalar subquery for that; otherwise it scans the index."""
    return select(select(end).where(*conditions).scalar_subquery().label("end")).subquery()


def _table_mark(*columns: Column[Any]) -> Subquery:
    """Row count and column sums of a small table."""
    return select(func.count(), *map(func.sum, columns)).subquery()


def _rows_mark(table: Table, condition: str) -> Subquery:
    """Row count and sum of ids: the sum changes when one row is replaced by another."""
    some = select(table.c.id).select_from(table).where(text(condition)).limit(MAX_ROWS).subquery()
    return select(func.count().label("number"), func.sum(some.c.id).label("sum")).subquery()


def _progress_mark(metadata: Table) -> Subquery:
    """Runs in progress and their progress."""
    column = metadata.c
    columns = (column.id, column.progress, column.junction_started_at, column.cancel_requested)
    some = select(*columns).where(text("state = 'in_progress'")).limit(MAX_ROWS).subquery()
    cancels = func.count().filter(some.c.cancel_requested)
    return select(
        func.count().label("number"),
        func.sum(some.c.id).label("sum"),
        func.sum(some.c.progress).label("progress"),
        func.max(some.c.junction_started_at).label("junction"),
        cancels.label("cancels"),
    ).subquery()
