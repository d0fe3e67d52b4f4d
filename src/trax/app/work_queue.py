"""`app.work_queue`: list, count and cancel entries of the work queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trax.app.lists import RecordLists
from trax.engine.actor import record_audit
from trax.engine.cancel import withdraw
from trax.errors import NotFound
from trax.records.listing import ChangedIds, RecordPage
from trax.records.nouns import ENTRIES
from trax.schedule.validate import ID, validate_ids
from trax.store.queue import queue_lists, work_queue
from trax.worker.entry import QueuedEntry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from trax.records import WorkQueueEntry
    from trax.records.listing import Count
    from trax.records.nouns import EntryFilter, EntryKeywords
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.worker.app_context import AppContext


class WorkQueue:
    """Entries that are queued, dispatched or cancelled."""

    def __init__(self, context: AppContext) -> None:
        self._store = context.store
        self._lists = RecordLists(context.store, ENTRIES, queue_lists.ENTRIES)
        self._live = context.live
        self._entry_waiter = context.entry_waiter

    async def get(self, entry_id: int) -> QueuedEntry:
        store = await self._store.open()
        found = await store.ask(work_queue.get, ID("entry_id", entry_id))
        if found is None:
            raise NotFound(f"there is no entry {entry_id} in the work queue")
        return self._with_waiter(found)

    async def list(self, **keywords: Unpack[EntryKeywords]) -> list[QueuedEntry]:
        """List entries, newest first. For the next page, pass the last id as `before`.

        With `brief`, inputs are omitted.
        """
        return [self._with_waiter(entry) for entry in await self._lists.load_list(keywords)]

    async def page(self, **keywords: Unpack[EntryKeywords]) -> RecordPage[QueuedEntry]:
        """Like `list`, with cursors for the pages before and after, at a bounded cost."""
        found = await self._lists.page(keywords)
        items = tuple(map(self._with_waiter, found.items))
        return RecordPage(items=items, older=found.older, newer=found.newer, complete=found.complete)

    async def count(self, *, quick: bool = False, **filters: Unpack[EntryFilter]) -> Count:
        """Count entries: exact up to ten thousand, an estimate beyond.

        A filter without an index, such as a group, scans the whole table. A `quick` count reads a bounded
        number of rows, as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(filters, quick=quick)

    async def cancel(self, ids: Iterable[int]) -> ChangedIds:
        """Cancel these entries, where still queued; return the ids of those.

        A dispatched entry is a run: cancel it with `app.executions.cancel`.
        """
        wanted = validate_ids(ids)
        store = await self._store.open()
        return await store.call(_withdraw, store, wanted, self._live.current)

    def _with_waiter(self, entry: WorkQueueEntry) -> QueuedEntry:
        return QueuedEntry(**entry.as_fields()).with_wait_function(self._entry_waiter)


def _withdraw(connection: Connection, store: Store, ids: list[int], settings: Settings) -> ChangedIds:
    now = store.now(connection)
    withdrawn = withdraw(connection, ids, settings, now=now)
    record_audit(connection, "work_queue.cancel", "entry", withdrawn, now=now, after={"requested": len(ids)})
    return ChangedIds(withdrawn)
