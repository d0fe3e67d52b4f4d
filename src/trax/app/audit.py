"""`app.audit`: list what operators changed, and undo changes to settings and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.app import groups, settings
from trax.app.lists import RecordLists
from trax.engine.actor import PROGRAM, acting, actor_context
from trax.errors import Conflict, NotFound, TraxError
from trax.records.nouns import AUDIT
from trax.schedule.validate import ID
from trax.store import audit

if TYPE_CHECKING:
    from typing import Unpack

    from trax.engine.live_settings import LiveSettings
    from trax.records.audit import AuditEntry
    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import AuditFilter, AuditKeywords
    from trax.store import Connection, Store
    from trax.store.audit import UndoableEntry
    from trax.worker.app_context import AppContext


class Audit:
    """The audit log: actor, action, target, values before and after, reason."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, AUDIT, audit.ENTRIES)
        self._live = context.live

    async def get(self, audit_id: int) -> AuditEntry:
        store = await self._store.open()
        found = await store.ask(audit.get, ID("audit_id", audit_id))
        if found is None:
            raise _not_found(audit_id)
        return found

    async def list(self, **keywords: Unpack[AuditKeywords]) -> list[AuditEntry]:
        """List audit entries, newest first. For the next page, pass the last id as `before`.

        With `brief`, long reasons are truncated.
        """
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[AuditKeywords]) -> RecordPage[AuditEntry]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost."""
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False, **filters: Unpack[AuditFilter]) -> Count:
        """Count audit entries: exact up to ten thousand, an estimate beyond."""
        return await self._lists.count(filters, quick=quick)

    async def undo(self, audit_id: int, *, force: bool = False) -> AuditEntry:
        """Restore the values that a change to settings or a group replaced; return the new audit entry.

        Raises Conflict if the values have changed again since; `force` overwrites them anyway.
        """
        wanted = ID("audit_id", audit_id)
        store = await self._store.open()
        if actor_context() is not None:
            return await store.call(_undo, store, self._live, wanted, force=force)
        with acting(PROGRAM):  # an undo is always recorded: `undone_by` refers to its entry
            return await store.call(_undo, store, self._live, wanted, force=force)


def _undo(
    connection: Connection, store: Store, live: LiveSettings, audit_id: int, *, force: bool
) -> AuditEntry:
    found = audit.load_undoable(connection, audit_id)
    if found is None:
        raise _not_found(audit_id)
    _check_undoable(found)
    if found.entry.noun == settings.NOUN:
        made = settings.restore(connection, store, live, found, force=force)
    else:
        made = groups.restore(connection, store, found, force=force)
    if not audit.mark_undone(connection, audit_id, by=made):
        raise Conflict(f"conflict: audit entry {audit_id} was undone concurrently")
    entry = audit.get(connection, made)
    assert entry is not None  # noqa: S101 - it was written in this transaction
    return entry


def _check_undoable(undoable: UndoableEntry) -> None:
    entry = undoable.entry
    if entry.undone_by is not None:
        raise Conflict(f"conflict: audit entry {entry.id} was already undone by entry {entry.undone_by}")
    if undoable.restores is None:
        raise TraxError(
            f"audit entry {entry.id} ({entry.action}) cannot be undone; only settings and group changes can"
        )


def _not_found(audit_id: int) -> NotFound:
    return NotFound(f"there is no audit entry {audit_id}")
