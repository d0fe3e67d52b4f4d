"""Watch for changes, for live pages: one watcher per process."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from trax.clock import is_set_within
from trax.errors import StoreError
from trax.events import Topic
from trax.records.status import ChangeTag, find_changes
from trax.server.listen import Listener
from trax.store import status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.records.status import ChangeMarks
    from trax.store import Store
    from trax.worker.app_context import AppContext

logger = logging.getLogger(__name__)
POLL_SECONDS: Final = 2.0
"""Poll interval for changes that are not announced: in SQLite, and of jobs within one process."""
WORKER_NEWS_SECONDS: Final = 10.0
"""How often heartbeats count as a change of the workers."""
TOPIC_TAGS: Final = {
    Topic.MANIFEST: (ChangeTag.MANIFESTS, ChangeTag.DEAD_LETTERS),
    Topic.WORK_QUEUE: (ChangeTag.QUEUE,),
    Topic.SETTING: (ChangeTag.SETTINGS,),
    Topic.CANCEL: (ChangeTag.EXECUTIONS,),
}
"""What certainly changed when a topic is announced. Other topics only trigger a check."""


class ChangeWatcher:
    """Checks for changes when this or another process announces something, else every few seconds."""

    def __init__(self, context: AppContext, store: Store, *, has_listener: bool) -> None:
        self._store = store
        self._woken = asyncio.Event()
        self._event_loop = asyncio.get_running_loop()
        self._announced_tags: set[ChangeTag] = set()
        self._last: ChangeMarks | None = None
        self._worker_news_at = self._event_loop.time()
        self._undo: list[Callable[[], None]] = [
            context.events.listen(topic, lambda topic=topic: self._on_event(topic)) for topic in Topic
        ]
        address = None if has_listener else context.store.listen_address
        self._listener = (
            None if address is None else Listener(address, store.announcer, timeouts=store.timeouts)
        )

    @classmethod
    async def start(cls, context: AppContext, *, has_listener: bool) -> Self:
        """Start watching. `has_listener`: this process has a listener already."""
        watching = cls(context, await context.store.open(), has_listener=has_listener)
        await watching.check()
        return watching

    async def next_change(self) -> frozenset[ChangeTag]:
        """Wait until something has changed. While the database is unavailable, nothing is reported."""
        while True:
            await is_set_within(self._woken, POLL_SECONDS)
            if found := await self.check():
                return found

    async def check(self) -> frozenset[ChangeTag]:
        """What has changed since the last check."""
        self._woken.clear()
        announced, self._announced_tags = self._announced_tags, set()
        try:
            marks = await self._store.ask(status.read_change_marks)
        except StoreError as error:
            logger.debug("dashboard: cannot check for changes: %s", error)
            self._announced_tags |= announced
            return frozenset()
        before, self._last = self._last, marks
        return find_changes(before, marks) | announced | self._worker_news()

    async def end(self) -> None:
        for undo in self._undo:
            undo()
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)

    def _worker_news(self) -> set[ChangeTag]:
        if self._event_loop.time() - self._worker_news_at < WORKER_NEWS_SECONDS:
            return set()
        self._worker_news_at = self._event_loop.time()
        return {ChangeTag.WORKERS}

    def _on_event(self, topic: Topic) -> None:
        """Called from any thread."""
        if not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._mark, topic)

    def _mark(self, topic: Topic) -> None:
        self._announced_tags.update(TOPIC_TAGS.get(topic, ()))
        self._woken.set()
