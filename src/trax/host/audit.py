"""`app.audit`: what operators did, and undoing some of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.errors import Conflict, NotFound, TraxError
from trax.host import groups, settings
from trax.host.acting import acting, who_acts
from trax.host.checks import ID, ID_OR_NONE, PAGE, check_moments, check_names
from trax.records.audit import Actor
from trax.records.filters import AuditFilter
from trax.store import audit

if TYPE_CHECKING:
    from datetime import datetime

    from trax.host.live_settings import LiveSettings
    from trax.host.parts import Parts
    from trax.records.audit import AuditEntry
    from trax.store import Connection, Store
    from trax.store.audit import Undoable


class Audit:
    """Who did what, when, to what, how it was before and after, and why."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._live = parts.live

    async def get(self, audit_id: int) -> AuditEntry:
        store = await self._store.opened()
        found = await store.ask(audit.get, ID("audit_id", audit_id))
        if found is None:
            raise _unknown(audit_id)
        return found

    async def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        noun: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[AuditEntry]:
        """Newest first. To read on, pass the id of the last one as `before`.

        `action` is a noun and a verb such as "groups.update"; `target` is what it was done to, by id or name.
        """
        check_moments(since=since, until=until)
        check_names(actor=actor, action=action, noun=noun, target=target)
        store = await self._store.opened()
        wanted = AuditFilter(actor=actor, action=action, noun=noun, target=target, since=since, until=until)
        before, limit = ID_OR_NONE("before", before), PAGE("limit", limit)
        return await store.ask(audit.listed, wanted, before=before, limit=limit)

    async def undo(self, audit_id: int, *, force: bool = False) -> AuditEntry:
        """Put back what a change of settings or of a group replaced; gives the entry about doing so.

        Refused with Conflict when it has been changed again since, unless `force` overwrites that, too.
        """
        wanted = ID("audit_id", audit_id)
        store = await self._store.opened()
        if who_acts() is not None:
            return await store.call(_undo, store, self._live, wanted, force=force)
        with acting(Actor("python")):  # an undo that left no entry could not be told from none
            return await store.call(_undo, store, self._live, wanted, force=force)


def _undo(
    connection: Connection, store: Store, live: LiveSettings, audit_id: int, *, force: bool
) -> AuditEntry:
    found = audit.to_undo(connection, audit_id)
    if found is None:
        raise _unknown(audit_id)
    _check(found)
    if found.entry.noun == settings.NOUN:
        made = settings.restore(connection, store, live, found, force=force)
    else:
        made = groups.restore(connection, store, found, force=force)
    if not audit.mark_undone(connection, audit_id, by=made):
        raise Conflict(f"audit entry {audit_id} was undone by somebody else in this moment")
    entry = audit.get(connection, made)
    assert entry is not None  # noqa: S101 - it was written in this transaction
    return entry


def _check(found: Undoable) -> None:
    entry = found.entry
    if entry.undone_by is not None:
        raise Conflict(f"audit entry {entry.id} was undone already, by entry {entry.undone_by}")
    if found.restores is None:
        raise TraxError(
            f"audit entry {entry.id} ({entry.action}) cannot be undone; changes of settings and groups can"
        )


def _unknown(audit_id: int) -> NotFound:
    return NotFound(f"there is no audit entry {audit_id}")
