"""Wait for the jobs of entries: the polling behind `QueuedEntry.wait`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from trax.bounds import LONGEST_SECONDS, is_number
from trax.clock import format_duration
from trax.errors import EntryCancelled, InvalidArgument, NotFound, WaitTimedOut
from trax.events import Topic
from trax.records.states import QueueStatus
from trax.records.work_queue_entry import QueuedEntry, WorkQueueEntry
from trax.schedule.validate import Requirement
from trax.worker.loop import Loop

if TYPE_CHECKING:
    from trax.engine.open_store import LazyStore
    from trax.events import Events
    from trax.records import Metadata
    from trax.store.queue.queue_lists import EntryResult

__all__ = ["EntryPoller", "EntryWaiter", "QueuedEntry"]

POLL_SECONDS: Final = 0.25
"""Poll interval: a job that ends in this process wakes its waiters at once, others within this time."""

TIMEOUT: Final = Requirement(
    "a number of seconds or a timedelta, from 0 to 68 years, or None",
    lambda value: value is None or is_number(value, 0, LONGEST_SECONDS),
)


class EntryWaiter:
    """Waits for entries on behalf of callers in any event loop."""

    def __init__(self, store: LazyStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, EntryPoller] = WeakKeyDictionary()

    async def __call__(self, entry: WorkQueueEntry, at_most: float | timedelta | None) -> Metadata:
        seconds = TIMEOUT("timeout", at_most.total_seconds() if isinstance(at_most, timedelta) else at_most)
        if not isinstance(cast("Any", entry), WorkQueueEntry):
            raise InvalidArgument("entry", "an entry, as app.queue returns it", entry)
        loop = asyncio.get_running_loop()
        poller = self._pollers.get(loop)
        if poller is None:
            poller = self._pollers[loop] = EntryPoller(self._store, self._events)
        try:
            async with asyncio.timeout(seconds):
                end = await poller.wait_for(entry.id)
        except TimeoutError:
            raise WaitTimedOut(
                f"entry {entry.id} of train {entry.train!r} has not ended after "
                f"{format_duration(seconds or 0)}; it continues"
            ) from None
        return _run_of(entry, end)


class EntryPoller:
    """The waiters of one event loop, and the loop that polls while there are any."""

    def __init__(self, store: LazyStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._waiters: defaultdict[int, set[asyncio.Future[EntryResult]]] = defaultdict(set)
        self._polling: tuple[Loop, asyncio.Task[None]] | None = None

    async def wait_for(self, entry_id: int) -> EntryResult:
        waiter: asyncio.Future[EntryResult] = asyncio.get_running_loop().create_future()
        self._waiters[entry_id].add(waiter)
        self._poll_now()
        try:
            return await waiter
        finally:
            self._remove(entry_id, waiter)

    def _poll_now(self) -> None:
        """Poll now: the job may have ended already."""
        if self._polling is None:
            loop = Loop("waiting", self._poll, poll_seconds=lambda: POLL_SECONDS)
            self._polling = loop, asyncio.create_task(self._run(loop), name="trax waiting")
        self._polling[0].wake()

    async def _run(self, loop: Loop) -> None:
        unsubscribe = self._events.listen(Topic.FINISHED, loop.wake)
        try:
            await loop.run()
        finally:
            unsubscribe()

    async def _poll(self) -> None:
        from trax.store.queue.queue_lists import load_ended

        began = monotonic()
        store = await self._store.open()
        for end in await store.ask(load_ended, list(self._waiters)):
            for waiter in self._waiters.get(end.entry_id, ()):
                if not waiter.done():
                    waiter.set_result(end)
        # Sleep as long as the query took: polling uses at most half of the database's time.
        await asyncio.sleep(monotonic() - began)

    def _remove(self, entry_id: int, waiter: asyncio.Future[EntryResult]) -> None:
        self._waiters[entry_id].discard(waiter)
        if not self._waiters[entry_id]:
            del self._waiters[entry_id]
        if not self._waiters and self._polling is not None:
            self._polling[0].stop()
            self._polling = None


def _run_of(entry: WorkQueueEntry, end: EntryResult) -> Metadata:
    if end.status == QueueStatus.CANCELLED:
        raise EntryCancelled(f"entry {entry.id} of train {entry.train!r} was withdrawn from the work queue")
    if end.status is None:
        raise NotFound(
            f"there is no entry {entry.id}: it was deleted, or its transaction has not committed yet"
        )
    if end.run is None:
        raise NotFound(f"entry {entry.id} has run, but its execution was deleted")
    return end.run
