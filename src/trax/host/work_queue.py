"""`app.work_queue`: everything that wants to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from trax.admin.withdrawal import withdraw
from trax.errors import NotFound
from trax.host.acting import note
from trax.host.asked_lists import AskedLists
from trax.host.checks import ID, check_names, checked_ids
from trax.host.entry import QueuedEntry
from trax.host.words import checked_word
from trax.records.filters import EntryFilter
from trax.records.states import Origin, QueueStatus
from trax.store import queue_pages, work_queue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from trax.host.parts import Parts
    from trax.records import WorkQueueEntry
    from trax.records.count import Count
    from trax.records.page import Page
    from trax.settings import Settings
    from trax.store import Connection, Store


class EntryKeywords(TypedDict, total=False):
    """Which entries: what is left out may be anything."""

    status: QueueStatus | str | None
    train: str | None
    manifest: str | None
    group: str | None
    origin: Origin | str | None


class WorkQueue:
    """What waits at the gate, what was let through it, and what was withdrawn."""

    def __init__(self, parts: Parts) -> None:
        self._store = parts.store
        self._lists = AskedLists(parts.store, queue_pages.ENTRIES)
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
        before: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **wanted: Unpack[EntryKeywords],
    ) -> list[QueuedEntry]:
        """Newest first. To read on, pass the id of the last one as `before`.

        With `brief` inputs are left out.
        """
        found = await self._lists.listed(_filter(wanted), before=before, limit=limit, brief=brief)
        return [self._waitable(entry) for entry in found]

    async def page(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        brief: bool = False,
        **wanted: Unpack[EntryKeywords],
    ) -> Page[WorkQueueEntry]:
        """The same as `list`, with the way to the pages before and after, at a bounded cost."""
        found = _filter(wanted)
        return await self._lists.page(found, before=before, after=after, limit=limit, brief=brief)

    async def count(self, *, quick: bool = False, **wanted: Unpack[EntryKeywords]) -> Count:
        """How many there are: exact up to ten thousand, beyond that about how many.

        A filter that no index answers, such as a group, reads all there is. A `quick` count looks at a
        bounded number of rows as a page does, and may be an estimate below ten thousand.
        """
        return await self._lists.count(_filter(wanted), quick=quick)

    async def cancel(self, ids: Iterable[int]) -> int:
        """Withdraw those of these entries that are still queued; returns how many that were.

        What has passed the gate is a run by now: `app.executions.cancel` stops it.
        """
        wanted = checked_ids(ids)
        store = await self._store.opened()
        return await store.call(_withdraw, store, wanted, self._live.now)

    def _waitable(self, entry: WorkQueueEntry) -> QueuedEntry:
        return QueuedEntry(**entry.as_fields()).awaited_by(self._waiting)


def _filter(wanted: EntryKeywords) -> EntryFilter:
    check_names(**{name: wanted.get(name) for name in ("train", "manifest", "group")})
    status = checked_word(QueueStatus, wanted.get("status"))
    origin = checked_word(Origin, wanted.get("origin"))
    said: dict[str, Any] = {**wanted, "status": status, "origin": origin}
    return EntryFilter(**said)


def _withdraw(connection: Connection, store: Store, ids: list[int], settings: Settings) -> int:
    now = store.now(connection)
    withdrawn = withdraw(connection, ids, settings, now=now)
    note(connection, "work_queue.cancel", "entry", withdrawn, now=now, after={"asked": len(ids)})
    return len(withdrawn)
