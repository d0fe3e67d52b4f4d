"""Read and write audit entries: actor, action, targets, values before and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Text, and_, cast, delete, func, insert, select, update

from trax.records.audit import DECLARED_SETTINGS, MAX_IDS, RETENTION, AuditEntry, Via, to_stored_json
from trax.store.dialect import is_sqlite
from trax.store.listing import RecordQuery, Search, equal_to, period_conditions
from trax.store.schema import tables
from trax.store.types import parse_json, parse_list, storable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection, Row, Select

    from trax.records.audit import Actor, NewAudit
    from trax.records.nouns import AuditFilter

PURGE_BATCH: Final = 10_000


class UndoableEntry(NamedTuple):
    """An entry with the values an undo writes and those it expects to find; None if it cannot be undone."""

    entry: AuditEntry
    restores: Any
    expects: Any


def add(connection: Connection, new: NewAudit, *, actor: Actor, reason: str | None, now: datetime) -> int:
    audit = tables(connection).audit
    row: dict[str, Any] = {
        "at": now,
        "actor": storable(actor.name),
        "via": Via(actor.via).value,
        "action": new.action,
        "noun": new.noun,
        "ids": json.dumps(new.ids[:MAX_IDS]),
        "targets": new.count,
        "before": to_stored_json(new.before),
        "after": to_stored_json(new.after),
        "restores": None if new.restores is None else json.dumps(new.restores),
        "expects": None if new.expects is None else json.dumps(new.expects),
        "reason": storable(reason),
        "undoes": new.undoes,
    }
    return connection.execute(insert(audit).values(row).returning(audit.c.id)).scalar_one()


def get(connection: Connection, audit_id: int) -> AuditEntry | None:
    undoable = load_undoable(connection, audit_id)
    return undoable.entry if undoable else None


def load_undoable(connection: Connection, audit_id: int) -> UndoableEntry | None:
    audit = tables(connection).audit
    row = connection.execute(select(audit).where(audit.c.id == audit_id)).one_or_none()
    return UndoableEntry(_record(row), parse_json(row.restores), parse_json(row.expects)) if row else None


def mark_undone(connection: Connection, audit_id: int, *, by: int) -> bool:
    """Record which entry undid this one; False if another one did so first."""
    audit = tables(connection).audit
    statement = update(audit).where(audit.c.id == audit_id, audit.c.undone_by.is_(None)).values(undone_by=by)
    return connection.execute(statement).rowcount == 1


def load_last(connection: Connection, action: str) -> AuditEntry | None:
    """The newest entry of this action."""
    audit = tables(connection).audit
    query = select(audit).where(audit.c.action == action).order_by(audit.c.id.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return _record(row) if row else None


def purge(connection: Connection, *, before: datetime) -> int:
    """Delete a batch of entries older than `before`, oldest first; returns how many.

    Entries of limits that servers have declared stay: they are few, and name no person. Changes of the
    retention stay too, so that nobody can shorten it without a trace.
    """
    audit = tables(connection).audit
    is_deletable = and_(audit.c.action != DECLARED_SETTINGS, ~_concerns(connection, RETENTION))
    oldest = select(audit.c.id).where(is_deletable).order_by(audit.c.id).limit(PURGE_BATCH)
    statement = delete(audit).where(audit.c.id.in_(oldest), audit.c.at < before)
    return connection.execute(statement).rowcount


def _record(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        at=row.at,
        actor=row.actor,
        via=Via(row.via),
        action=row.action,
        noun=row.noun,
        ids=parse_list(row.ids),
        count=row.targets,
        before=parse_json(row.before),
        after=parse_json(row.after),
        reason=row.reason,
        undoes=row.undoes,
        undone_by=row.undone_by,
        can_undo=row.restores is not None and row.undone_by is None,
    )


def _select_records(connection: Connection) -> Select[Any]:
    return select(tables(connection).audit)


def _search(connection: Connection, filters: AuditFilter) -> Search:
    audit = tables(connection).audit
    conditions = [
        *equal_to(audit, filters, "actor", "action", "noun"),
        *period_conditions(audit.c.at, filters),
    ]
    if (target := filters.get("target")) is not None:
        conditions.append(_concerns(connection, target))
    return Search(table=audit, unindexed=conditions)


def _concerns(connection: Connection, target: str) -> ColumnElement[bool]:
    """Whether this is one of the listed ids."""
    position = func.instr if is_sqlite(connection) else func.strpos
    return position(cast(tables(connection).audit.c.ids, Text), json.dumps(target)) > 0


ENTRIES: Final = RecordQuery(search=_search, records=_select_records, record=_record)
