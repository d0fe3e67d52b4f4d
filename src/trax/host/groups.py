"""`app.groups`: who shares a limit and a priority, at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from trax.admin import triggers
from trax.errors import Conflict, NotFound, shown
from trax.events import Topic
from trax.host.acting import note
from trax.host.checks import NAME, PAGE, check_names
from trax.schedule.declaration import UNSET, Group, Unset
from trax.store import manifest_groups, manifests, metadata_sweeps
from trax.store.announcing import announce

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records import ManifestGroup
    from trax.store import Connection, Store
    from trax.store.audit import Undoable

NOUN: Final = "group"


class Groups:
    """Limits, priorities and switches, live on every server."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store

    async def update(
        self,
        name: str,
        *,
        max_active_jobs: int | Unset | None = UNSET,
        priority: int | Unset = UNSET,
        enabled: bool | Unset = UNSET,
    ) -> ManifestGroup:
        """Change what is given; what is left out stays, and None means no limit."""
        wanted = Group(name, max_active_jobs=max_active_jobs, priority=priority, enabled=enabled)
        said = {word: getattr(wanted, word) for word in ("max_active_jobs", "priority", "enabled")}
        changes = {word: value for word, value in said.items() if value is not UNSET}
        store = await self._store.opened()
        return await store.call(_updated, store, name, changes)

    async def trigger(self, name: str) -> int:
        """Start every enabled manifest of the group that depends on no other; returns how many entries."""
        NAME("name", name)
        store = await self._store.opened()
        return await store.call(_trigger, store, name)

    async def cancel(self, name: str) -> int:
        """Ask all runs of the group to stop; returns how many."""
        NAME("name", name)
        store = await self._store.opened()
        return await store.call(_cancel, store, name)

    async def get(self, name: str) -> ManifestGroup:
        NAME("name", name)
        store = await self._store.opened()
        found = await store.ask(manifest_groups.get, name)
        if found is None:
            raise _unknown(name)
        return found

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[ManifestGroup]:
        """In the order of their names. To read on, pass the last one's as `after`."""
        check_names(after=after)
        size = PAGE("limit", limit)
        store = await self._store.opened()
        return await store.ask(manifest_groups.listed, after=after, limit=size)


def restore(connection: Connection, store: Store, found: Undoable, *, force: bool) -> int:
    """Put back what a change replaced, if it is still as that change left it; gives the new audit entry."""
    (name,) = found.entry.ids
    group = manifest_groups.locked(connection, name)
    if group is None:
        raise _unknown(name)
    changed = {
        word: getattr(group, word) for word, value in found.expects.items() if getattr(group, word) != value
    }
    if changed and not force:
        told = ", ".join(f"{word} is {shown(value)} by now" for word, value in changed.items())
        raise Conflict(f"group {name!r} was changed again: {told}; say force=True to undo it all the same")
    return _change(connection, store, group, found.restores, undoes=found.entry.id) or 0


def _updated(connection: Connection, store: Store, name: str, changes: dict[str, Any]) -> ManifestGroup:
    group = manifest_groups.locked(connection, name)
    if group is None:
        raise _unknown(name)
    if changes:
        _change(connection, store, group, changes)
    return replace(group, **changes)


def _change(
    connection: Connection,
    store: Store,
    group: ManifestGroup,
    changes: dict[str, Any],
    undoes: int | None = None,
) -> int | None:
    now = store.now(connection)
    manifest_groups.change(connection, group.name, changes, now=now)
    if changes.get("enabled"):
        manifests.look_at_group(connection, group.id, now=now)
    announce(connection, Topic.MANIFEST, Topic.WORK_QUEUE)
    before = {word: getattr(group, word) for word in changes}
    said = {"before": before, "after": changes, "restores": before, "expects": changes}
    return note(connection, "groups.update", NOUN, [group.name], now=now, undoes=undoes, **said)


def _trigger(connection: Connection, store: Store, name: str) -> int:
    _check_known(connection, name)
    now = store.now(connection)
    count = triggers.trigger_group(connection, name, now=now)
    note(connection, "groups.trigger", NOUN, [name], now=now, after={"entries": count})
    return count


def _cancel(connection: Connection, store: Store, name: str) -> int:
    _check_known(connection, name)
    asked = metadata_sweeps.request_cancel(connection, manifests.running(connection, group=name))
    note(
        connection,
        "groups.cancel",
        NOUN,
        [name],
        now=store.now(connection),
        after={"asked_to_stop": len(asked)},
    )
    return len(asked)


def _check_known(connection: Connection, name: str) -> None:
    if manifest_groups.get(connection, name) is None:
        raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no group {name!r}")
