"""Entries for manifests that are due, and on each manifest what its entry is for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, func, insert, or_, select, update

from trax.records.states import QueueStatus
from trax.store.dialect import moment, quick_document, rows_of
from trax.store.schema import tables_for
from trax.store.types import SQLITE, Utc, word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy import FromClause, Insert, Update
    from sqlalchemy.types import TypeEngine

    from trax.store.pipeline import Step

DECIDED: Final = (
    "external_id",
    "manifest_id",
    "origin",
    "priority",
    "group_priority",
    "attempt",
    "scheduled_at",
    "scheduled_for",
)
"""What a row says of the entry, beside its `number` among the others."""
NOTED: Final = ("next_due_at", "consumed_parent_success_at")
"""What it says of the manifest; what it does not mention is NULL, or stays."""
OWN: Final = ("train", "group_id", "timeout_seconds")
"""What is the manifest's own: its row is locked, so it is still what was looked at.

So is the input, unless the row has one: what was woken with an input of its own is tried again with it.
"""


def queueing(dialect: str, rows: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Step]:
    """The steps that write these entries, in the order of their numbers; the first gives (id, external id).

    PostgreSQL does both in one statement, and looks up each manifest once.
    """
    entries = quick_document(dialect, rows)
    noting: list[Step] = [(_note(dialect), {"entries": entries})] if dialect == SQLITE else []
    return [(_insert(dialect), {"entries": entries, "now": now}), *noting]


@cache
def _insert(dialect: str) -> Insert:
    queue, source = tables_for(dialect).work_queue, _source(dialect)
    columns: dict[str, Any] = {name: source.c[name] for name in (*OWN, "input", *DECIDED)} | {
        "status": word(QueueStatus.QUEUED),
        "ready": or_(source.c.scheduled_at.is_(None), source.c.scheduled_at <= moment(dialect)),
        "created_at": moment(dialect),
    }
    rows = select(*columns.values()).order_by(source.c.number)
    return insert(queue).from_select(list(columns), rows).returning(queue.c.id, queue.c.external_id)


def _source(dialect: str) -> FromClause:
    manifest, given = tables_for(dialect).manifest, _given(dialect)
    columns = (
        *(manifest.c[name] for name in OWN),
        func.coalesce(given.c.input, manifest.c.input).label("input"),
        *(given.c[name] for name in ("number", *DECIDED)),
    )
    if dialect == SQLITE:
        return select(*columns).join(given, given.c.manifest_id == manifest.c.id).subquery("looked_at")
    return _note(dialect).returning(*columns).cte("noted")


@cache
def _note(dialect: str) -> Update:
    manifest, given = tables_for(dialect).manifest, _given(dialect)
    consumed = func.coalesce(given.c.consumed_parent_success_at, manifest.c.consumed_parent_success_at)
    return (
        update(manifest)
        .where(manifest.c.id == given.c.manifest_id)
        .values(
            next_due_at=given.c.next_due_at,
            last_scheduled_for=given.c.scheduled_for,
            consumed_parent_success_at=consumed,
        )
    )


@cache
def _given(dialect: str) -> FromClause:
    queue = tables_for(dialect).work_queue
    kinds: dict[str, TypeEngine[Any]] = {"number": Integer()}
    kinds |= {name: queue.c[name].type for name in ("input", *DECIDED)} | {name: Utc() for name in NOTED}
    return rows_of(dialect, "entries", kinds)
