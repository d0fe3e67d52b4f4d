"""Waiting for jobs to be over. All who wait in one event loop share one query."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from trax.errors import EntryCancelled, NotFound
from trax.events import Topic
from trax.host.loop import Loop
from trax.records.states import QueueStatus
from trax.schedule.requirement import Requirement
from trax.store import entry_endings

if TYPE_CHECKING:
    from trax.events import Events
    from trax.host.opening import OpenStore
    from trax.records import Metadata, WorkQueueEntry
    from trax.store.entry_endings import EntryEnd

POLL_SECONDS: Final = 0.25
"""A job that ends in this process is noticed at once, one that ends elsewhere after this long at the most."""

TIMEOUT: Final = Requirement(
    "a number of seconds, 0 or more, or a timedelta, or None",
    lambda value: (
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0)
    ),
)


class Waiting:
    """Waits for entries on behalf of callers in any event loop."""

    def __init__(self, store: OpenStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, WaitingRoom] = WeakKeyDictionary()

    async def __call__(self, entry: WorkQueueEntry, at_most: float | timedelta | None) -> Metadata:
        seconds = TIMEOUT("timeout", at_most.total_seconds() if isinstance(at_most, timedelta) else at_most)
        home = asyncio.get_running_loop()
        room = self._rooms.get(home)
        if room is None:
            room = self._rooms[home] = WaitingRoom(self._store, self._events)
        try:
            async with asyncio.timeout(seconds):
                end = await room.end_of(entry.id)
        except TimeoutError:
            raise TimeoutError(
                f"entry {entry.id} of train {entry.train!r} is not over after {seconds} s; it goes on"
            ) from None
        return _run_of(entry, end)


class WaitingRoom:
    """Those who wait in one event loop, and the loop that looks for all of them while there are any."""

    def __init__(self, store: OpenStore, events: Events) -> None:
        self._store = store
        self._events = events
        self._guests: defaultdict[int, set[asyncio.Future[EntryEnd]]] = defaultdict(set)
        self._looking: tuple[Loop, asyncio.Task[None]] | None = None

    async def end_of(self, entry_id: int) -> EntryEnd:
        guest: asyncio.Future[EntryEnd] = asyncio.get_running_loop().create_future()
        self._guests[entry_id].add(guest)
        self._look()
        try:
            return await guest
        finally:
            self._leave(entry_id, guest)

    def _look(self) -> None:
        """Look now: whoever has just come may wait for what is over already."""
        if self._looking is None:
            loop = Loop("waiting", self._turn, poll_seconds=lambda: POLL_SECONDS)
            self._looking = loop, asyncio.create_task(self._run(loop), name="trax waiting")
        self._looking[0].wake()

    async def _run(self, loop: Loop) -> None:
        forget = self._events.listen(Topic.FINISHED, loop.wake)
        try:
            await loop.run()
        finally:
            forget()

    async def _turn(self) -> None:
        began = monotonic()
        store = await self._store.opened()
        for end in await store.ask(entry_endings.ended, list(self._guests)):
            for guest in self._guests.get(end.entry_id, ()):
                if not guest.done():
                    guest.set_result(end)
        # As long as the look took: many who wait never keep the database busy for more than half of the time.
        await asyncio.sleep(monotonic() - began)

    def _leave(self, entry_id: int, guest: asyncio.Future[EntryEnd]) -> None:
        self._guests[entry_id].discard(guest)
        if not self._guests[entry_id]:
            del self._guests[entry_id]
        if not self._guests and self._looking is not None:
            self._looking[0].stop()
            self._looking = None


def _run_of(entry: WorkQueueEntry, end: EntryEnd) -> Metadata:
    if end.status == QueueStatus.CANCELLED:
        raise EntryCancelled(f"entry {entry.id} of train {entry.train!r} was withdrawn from the work queue")
    if end.status is None:
        raise NotFound(
            f"there is no entry {entry.id}: it was deleted, or whoever queued it has not committed yet"
        )
    if end.run is None:
        raise NotFound(f"entry {entry.id} has run, but the record of its run was deleted")
    return end.run
