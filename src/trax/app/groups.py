"""`app.groups`: change limits, priority and state of groups at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from trax.app.lists import RecordLists
from trax.engine import trigger
from trax.engine.actor import PROGRAM, record_audit
from trax.errors import Conflict, NotFound, did_you_mean, format_value
from trax.events import Topic
from trax.records.listing import ChangedIds
from trax.records.manifest import LIMIT_FIELDS
from trax.records.nouns import GROUPS
from trax.schedule.declaration import UNSET, Group, Unset
from trax.schedule.validate import NAME
from trax.store import groups
from trax.store.announce import announce
from trax.store.manifests import manifest_rows
from trax.store.runs import rescue

if TYPE_CHECKING:
    from typing import Unpack

    from trax.records import ManifestGroup
    from trax.records.listing import Count, RecordPage
    from trax.records.nouns import PageByName
    from trax.store import Connection, Store
    from trax.store.audit import UndoableEntry
    from trax.worker.app_context import AppContext

NOUN: Final = "group"
COMPARED: Final = 500
"""With how many existing names an unknown one is compared."""


class Groups:
    """Groups of manifests. Changes take effect on every server within one cycle."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, GROUPS, groups.GROUPS)

    async def update(
        self,
        name: str,
        *,
        max_active_jobs: int | Unset | None = UNSET,
        priority: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> ManifestGroup:
        """Change the given fields. An omitted one is unchanged; None means no limit."""
        group = Group(name, max_active_jobs=max_active_jobs, priority=priority, enabled=enabled)
        fields = {field: getattr(group, field) for field in ("max_active_jobs", "priority", "enabled")}
        changes = {field: value for field, value in fields.items() if value is not UNSET}
        store = await self._store.open()
        return await store.call(_update, store, name, changes)

    async def trigger(self, name: str) -> int:
        """Enqueue every enabled manifest of the group that depends on no other; return how many."""
        NAME("name", name)
        store = await self._store.open()
        return await store.call(_trigger, store, name)

    async def cancel(self, name: str) -> ChangedIds:
        """Request cancellation of all runs of the group; return their ids."""
        NAME("name", name)
        store = await self._store.open()
        return await store.call(_cancel, store, name)

    async def get(self, name: str) -> ManifestGroup:
        NAME("name", name)
        store = await self._store.open()
        found = await store.ask(groups.get, name)
        if found is None:
            raise await store.ask(_not_found, name)
        return found

    async def list(self, **keywords: Unpack[PageByName]) -> list[ManifestGroup]:
        """List groups by name. For the next page, pass the last name as `after`."""
        return await self._lists.load_list(keywords)

    async def page(self, **keywords: Unpack[PageByName]) -> RecordPage[ManifestGroup]:
        """Like `list`, with cursors: `older` is for `before`, `newer` for `after`."""
        return await self._lists.page(keywords)

    async def count(self, *, quick: bool = False) -> Count:
        """Count groups; those that contain only retired manifests are omitted, as in a list."""
        return await self._lists.count({}, quick=quick)


def restore(connection: Connection, store: Store, undoable: UndoableEntry, *, force: bool) -> int:
    """Restore the values a change replaced, unless they changed again; return the id of the audit entry."""
    (name,) = undoable.entry.ids
    group = groups.load_for_update(connection, name)
    if group is None:
        raise _not_found(connection, name)
    changed = {
        field: getattr(group, field)
        for field, value in undoable.expects.items()
        if getattr(group, field) != value
    }
    if changed and not force:
        differences = ", ".join(f"{field} is now {format_value(value)}" for field, value in changed.items())
        raise Conflict(
            f"conflict: group {name!r} has changed since: {differences}; pass force=True to undo anyway"
        )
    return _change(connection, store, group, undoable.restores, undoes=undoable.entry.id) or 0


def _update(connection: Connection, store: Store, name: str, changes: dict[str, Any]) -> ManifestGroup:
    group = groups.load_for_update(connection, name)
    if group is None:
        raise _not_found(connection, name)
    if changes:
        _change(connection, store, group, changes)
    return replace(group, **changes, retired_at=None) if changes else group


def _change(
    connection: Connection,
    store: Store,
    group: ManifestGroup,
    changes: dict[str, Any],
    undoes: int | None = None,
) -> int | None:
    now = store.now(connection)
    touched = {"edited_at": now, "ad_hoc": False, "retired_at": None}
    groups.change(connection, group.name, {**changes, **touched}, now=now)
    if changes.get("enabled"):
        manifest_rows.mark_group_due(connection, group.id, now=now)
    announce(connection, Topic.MANIFEST, Topic.WORK_QUEUE)
    before = {field: getattr(group, field) for field in changes}
    values = {"before": before, "after": changes, "restores": before, "expects": changes}
    changes_limit = any(before[field] != changes[field] for field in LIMIT_FIELDS if field in changes)
    default = PROGRAM if changes_limit else None
    return record_audit(
        connection, "groups.update", NOUN, [group.name], now=now, undoes=undoes, default=default, **values
    )


def _trigger(connection: Connection, store: Store, name: str) -> int:
    _check_exists(connection, name)
    now = store.now(connection)
    count = trigger.trigger_group(connection, name, now=now)
    record_audit(connection, "groups.trigger", NOUN, [name], now=now, after={"entries": count})
    return count


def _cancel(connection: Connection, store: Store, name: str) -> ChangedIds:
    _check_exists(connection, name)
    run_ids = rescue.request_cancel(connection, manifest_rows.load_running_ids(connection, group=name))
    record_audit(
        connection,
        "groups.cancel",
        NOUN,
        [name],
        now=store.now(connection),
        after={"stop_requested": len(run_ids)},
    )
    return ChangedIds(run_ids)


def _check_exists(connection: Connection, name: str) -> None:
    if groups.get(connection, name) is None:
        raise _not_found(connection, name)


def _not_found(connection: Connection, name: str) -> NotFound:
    known = [group.name for group in groups.load_list(connection, limit=COMPARED)]
    return NotFound(f"there is no group {name!r}{did_you_mean(name, known)}")
