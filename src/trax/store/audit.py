"""The audit's rows: who did what to what, how it was before and after."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import delete, insert, select, update

from trax.records.audit import TARGETS_AT_MOST, AuditEntry, Via, kept
from trax.store.json import parsed
from trax.store.schema import tables
from trax.store.text import storable

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row, Select

    from trax.records.audit import Actor, NewAudit
    from trax.records.filters import AuditFilter

SEARCHED: Final = 10_000
"""How many entries are looked through for one that names a target: nothing is indexed by that."""
FORGOTTEN_AT_ONCE: Final = 10_000


class Undoable(NamedTuple):
    """An entry, with what an undo writes and what it expects to find; None where there is no undo."""

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
        "ids": json.dumps(new.ids[:TARGETS_AT_MOST]),
        "targets": new.count,
        "before": kept(new.before),
        "after": kept(new.after),
        "restores": None if new.restores is None else json.dumps(new.restores),
        "expects": None if new.expects is None else json.dumps(new.expects),
        "reason": storable(reason),
        "undoes": new.undoes,
    }
    return connection.execute(insert(audit).values(row).returning(audit.c.id)).scalar_one()


def get(connection: Connection, audit_id: int) -> AuditEntry | None:
    found = to_undo(connection, audit_id)
    return found.entry if found else None


def to_undo(connection: Connection, audit_id: int) -> Undoable | None:
    audit = tables(connection).audit
    row = connection.execute(select(audit).where(audit.c.id == audit_id)).one_or_none()
    return Undoable(_record(row), parsed(row.restores), parsed(row.expects)) if row else None


def mark_undone(connection: Connection, audit_id: int, *, by: int) -> bool:
    """Note which entry undid this one; False when another has done so in the same moment."""
    audit = tables(connection).audit
    statement = update(audit).where(audit.c.id == audit_id, audit.c.undone_by.is_(None)).values(undone_by=by)
    return connection.execute(statement).rowcount == 1


def listed(
    connection: Connection, wanted: AuditFilter, *, before: int | None = None, limit: int = 50
) -> list[AuditEntry]:
    """Entries, newest first; `before` is the id of the last one already seen."""
    audit = tables(connection).audit
    said = {audit.c.actor: wanted.actor, audit.c.action: wanted.action, audit.c.noun: wanted.noun}
    query = select(audit).where(*(column == value for column, value in said.items() if value is not None))
    if wanted.since is not None:
        query = query.where(audit.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(audit.c.at < wanted.until)
    if before is not None:
        query = query.where(audit.c.id < before)
    if wanted.target is None:
        return [_record(row) for row in connection.execute(query.order_by(audit.c.id.desc()).limit(limit))]
    return _naming(connection, query.order_by(audit.c.id.desc()).limit(SEARCHED), wanted.target)[:limit]


def purge(connection: Connection, *, before: datetime) -> int:
    """Forget what was done long ago, the oldest first and not too much at once."""
    audit = tables(connection).audit
    oldest = select(audit.c.id).order_by(audit.c.id).limit(FORGOTTEN_AT_ONCE)
    statement = delete(audit).where(audit.c.id.in_(oldest), audit.c.at < before)
    return connection.execute(statement).rowcount


def _naming(connection: Connection, query: Select[Any], target: str) -> list[AuditEntry]:
    """Those that name this target among the ids they list."""
    entries = (_record(row) for row in connection.execute(query))
    return [entry for entry in entries if target in entry.ids]


def _record(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        at=row.at,
        actor=row.actor,
        via=Via(row.via),
        action=row.action,
        noun=row.noun,
        ids=tuple(parsed(row.ids)),
        count=row.targets,
        before=parsed(row.before),
        after=parsed(row.after),
        reason=row.reason,
        undoes=row.undoes,
        undone_by=row.undone_by,
        can_undo=row.restores is not None and row.undone_by is None,
    )
