"""What has changed, for those who keep watching: noticed once in a process, however many they are."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Self

from trax.clock import is_set_within
from trax.errors import StoreError
from trax.events import Topic
from trax.host.listen import Ear
from trax.records.pulse import Tag, changed
from trax.store import pulse

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.host.parts import Parts
    from trax.records.pulse import Pulse
    from trax.store import Store

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
"""How long to wait where nobody says anything: in SQLite, and of jobs that pass through one process."""
BEATS_SECONDS: Final = 10.0
"""How often it counts as news that workers live."""
SAYS: Final = {
    Topic.MANIFEST: (Tag.MANIFESTS, Tag.DEAD_LETTERS),
    Topic.WORK_QUEUE: (Tag.QUEUE,),
    Topic.SETTING: (Tag.SETTINGS,),
    Topic.CANCEL: (Tag.EXECUTIONS,),
}
"""What is certainly news when it was said. Other words are only a reason to look."""


class Watching:
    """Looks when something was said in this process or by another, and else every few seconds."""

    def __init__(self, parts: Parts, store: Store, *, has_ear: bool) -> None:
        self._store = store
        self._woken = asyncio.Event()
        self._home = asyncio.get_running_loop()
        self._said: set[Tag] = set()
        self._last: Pulse | None = None
        self._beats_at = self._home.time()
        self._undo: list[Callable[[], None]] = [
            parts.events.listen(topic, lambda topic=topic: self._hear(topic)) for topic in Topic
        ]
        address = None if has_ear else parts.store.listen_address
        self._ear = None if address is None else Ear(address, store.announcer, timeouts=store.timeouts)

    @classmethod
    async def begun(cls, parts: Parts, *, has_ear: bool) -> Self:
        """`has_ear`: this process listens to others already."""
        watching = cls(parts, await parts.store.opened(), has_ear=has_ear)
        await watching.look()
        return watching

    async def next_change(self) -> frozenset[Tag]:
        """Wait until something has changed. Without a database nothing has, as far as anybody can tell."""
        while True:
            await is_set_within(self._woken, POLL_SECONDS)
            if found := await self.look():
                return found

    async def look(self) -> frozenset[Tag]:
        """What has changed since the last look."""
        self._woken.clear()
        said, self._said = self._said, set()
        try:
            seen = await self._store.ask(pulse.read)
        except StoreError as error:
            logger.debug("cannot look for changes: %s", error)
            self._said |= said
            return frozenset()
        before, self._last = self._last, seen
        return changed(before, seen) | said | self._beats()

    async def end(self) -> None:
        for undo in self._undo:
            undo()
        if self._ear is not None:
            await asyncio.to_thread(self._ear.close)

    def _beats(self) -> set[Tag]:
        if self._home.time() - self._beats_at < BEATS_SECONDS:
            return set()
        self._beats_at = self._home.time()
        return {Tag.WORKERS}

    def _hear(self, topic: Topic) -> None:
        """Any thread may say something."""
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(self._note, topic)

    def _note(self, topic: Topic) -> None:
        self._said.update(SAYS.get(topic, ()))
        self._woken.set()
