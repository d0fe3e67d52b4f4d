"""Insert entries for due manifests, and record on each manifest what was scheduled."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, insert, or_, select, update

from trax.records.states import QueueStatus
from trax.store.dialect import now_parameter, quick_document, rows_of
from trax.store.schema import tables_for
from trax.store.types import SQLITE, Utc, sql_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import FromClause, Insert, Update
    from sqlalchemy.types import TypeEngine

    from trax.store.pipeline import BoundStatement

ENTRY_COLUMNS: Final = (
    "external_id",
    "manifest_id",
    "origin",
    "priority",
    "group_priority",
    "attempt",
    "scheduled_at",
    "scheduled_for",
)
"""Columns of a row that go to the entry, beside its `number` (the insertion order)."""
MANIFEST_COLUMNS: Final = ("next_due_at", "consumed_parent_success_at")
"""Columns of a row that go to the manifest; a missing next_due_at is NULL, the other one stays as it is."""
COPIED_FROM_MANIFEST: Final = ("train", "group_id", "timeout_seconds")
"""Columns copied from the manifest, whose row is locked since it was read.

The input is copied too, unless the row has one: an activation with its own input is retried with that input.
"""


def insert_statements(
    dialect: str, rows: Sequence[Mapping[str, Any]], *, now: datetime
) -> list[BoundStatement]:
    """The statements that insert these entries in order of `number`; the first returns (id, external id).

    PostgreSQL inserts and updates in one statement, and looks up each manifest once.
    """
    entries = quick_document(dialect, rows)
    updates: list[BoundStatement] = (
        [(_update_manifests(dialect), {"entries": entries})] if dialect == SQLITE else []
    )
    return [(_insert(dialect), {"entries": entries, "now": now}), *updates]


@cache
def _insert(dialect: str) -> Insert:
    queue, source = tables_for(dialect).work_queue, _source(dialect)
    columns: dict[str, Any] = {
        name: source.c[name] for name in (*COPIED_FROM_MANIFEST, "input", *ENTRY_COLUMNS)
    } | {
        "status": sql_literal(QueueStatus.QUEUED),
        "ready": or_(source.c.scheduled_at.is_(None), source.c.scheduled_at <= now_parameter(dialect)),
        "created_at": now_parameter(dialect),
    }
    rows = select(*columns.values()).order_by(source.c.number)
    return insert(queue).from_select(list(columns), rows).returning(queue.c.id, queue.c.external_id)


def _source(dialect: str) -> FromClause:
    manifest, rows = tables_for(dialect).manifest, _entry_rows(dialect)
    columns = (
        *(manifest.c[name] for name in COPIED_FROM_MANIFEST),
        func.coalesce(rows.c.input, manifest.c.input).label("input"),
        *(rows.c[name] for name in ("number", *ENTRY_COLUMNS)),
    )
    if dialect == SQLITE:
        return select(*columns).join(rows, rows.c.manifest_id == manifest.c.id).subquery("looked_at")
    return _update_manifests(dialect).returning(*columns).cte("noted")


@cache
def _update_manifests(dialect: str) -> Update:
    manifest, rows = tables_for(dialect).manifest, _entry_rows(dialect)
    consumed = func.coalesce(rows.c.consumed_parent_success_at, manifest.c.consumed_parent_success_at)
    return (
        update(manifest)
        .where(manifest.c.id == rows.c.manifest_id)
        .values(
            next_due_at=rows.c.next_due_at,
            last_scheduled_for=rows.c.scheduled_for,
            consumed_parent_success_at=consumed,
        )
    )


@cache
def _entry_rows(dialect: str) -> FromClause:
    queue = tables_for(dialect).work_queue
    kinds: dict[str, TypeEngine[Any]] = {"number": Integer()}
    kinds |= {name: queue.c[name].type for name in ("input", *ENTRY_COLUMNS)} | {
        name: Utc() for name in MANIFEST_COLUMNS
    }
    return rows_of(dialect, "entries", kinds)
