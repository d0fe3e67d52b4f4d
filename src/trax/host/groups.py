"""`app.groups`: who shares a limit and a priority, at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trax.admin import triggers
from trax.errors import NotFound
from trax.events import Topic
from trax.schedule.declaration import UNSET, Group, Unset
from trax.store import manifest_groups, manifests, metadata_sweeps
from trax.store.announcing import announce

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.records import ManifestGroup
    from trax.store import Connection, Store


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
        return await store.call(_update, store, name, changes)

    async def trigger(self, name: str) -> int:
        """Start every enabled manifest of the group that depends on no other; returns how many entries."""
        store = await self._store.opened()
        return await store.call(_trigger, store, name)

    async def cancel(self, name: str) -> int:
        """Ask all runs of the group to stop; returns how many."""
        store = await self._store.opened()
        return await store.call(_cancel, name)

    async def get(self, name: str) -> ManifestGroup:
        store = await self._store.opened()
        found = await store.ask(manifest_groups.get, name)
        if found is None:
            raise _unknown(name)
        return found

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[ManifestGroup]:
        """In the order of their names. To read on, pass the last one's as `after`."""
        store = await self._store.opened()
        return await store.ask(manifest_groups.listed, after=after, limit=limit)


def _update(connection: Connection, store: Store, name: str, changes: dict[str, Any]) -> ManifestGroup:
    now = store.now(connection)
    if changes and not manifest_groups.change(connection, name, changes, now=now):
        raise _unknown(name)
    group = manifest_groups.get(connection, name)
    if group is None:
        raise _unknown(name)
    if changes.get("enabled"):
        manifests.look_at_group(connection, group.id, now=now)
    announce(connection, Topic.MANIFEST, Topic.WORK_QUEUE)
    return group


def _trigger(connection: Connection, store: Store, name: str) -> int:
    return triggers.trigger_group(connection, name, now=store.now(connection))


def _cancel(connection: Connection, name: str) -> int:
    return len(metadata_sweeps.request_cancel(connection, manifests.running(connection, group=name)))


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no group {name!r}")
