"""`app.work_queue`: everything that wants to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.admin.withdrawal import withdraw
from trax.errors import NotFound
from trax.host.checks import ID, ID_OR_NONE, PAGE, checked_ids
from trax.host.entry import QueuedEntry
from trax.host.words import checked_word
from trax.records.states import Origin, QueueStatus
from trax.store import work_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.host.parts import Parts
    from trax.records import WorkQueueEntry
    from trax.settings import Settings
    from trax.store import Connection, Store


class WorkQueue:
    """What waits at the gate, what was let through it, and what was withdrawn."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._live = parts.live
        self._waiting = parts.waiting

    async def get(self, entry_id: int) -> QueuedEntry:
        store = await self._store.opened()
        found = await store.ask(work_queue.get, ID("entry_id", entry_id))
        if found is None:
            raise NotFound(f"there is no entry {entry_id} in the work queue")
        return self._waitable(found)

    async def list(
        self,
        *,
        status: QueueStatus | str | None = None,
        train: str | None = None,
        manifest: str | None = None,
        group: str | None = None,
        origin: Origin | str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[QueuedEntry]:
        """Newest first. To read on, pass the id of the last one as `before`."""
        wanted_status, wanted_origin = checked_word(QueueStatus, status), checked_word(Origin, origin)
        store = await self._store.opened()
        found = await store.ask(
            work_queue.listed,
            status=wanted_status,
            train=train,
            manifest=manifest,
            group=group,
            origin=wanted_origin,
            before=ID_OR_NONE("before", before),
            limit=PAGE("limit", limit),
        )
        return [self._waitable(entry) for entry in found]

    async def cancel(self, ids: Iterable[int]) -> int:
        """Withdraw those of these entries that are still queued; returns how many that were.

        What has passed the gate is a run by now: `app.executions.cancel` stops it.
        """
        wanted = checked_ids(ids)
        store = await self._store.opened()
        return await store.call(_withdraw, store, wanted, self._live.now)

    def _waitable(self, entry: WorkQueueEntry) -> QueuedEntry:
        return QueuedEntry(**entry.as_fields()).awaited_by(self._waiting)


def _withdraw(connection: Connection, store: Store, ids: list[int], settings: Settings) -> int:
    return len(withdraw(connection, ids, settings, now=store.now(connection)))
