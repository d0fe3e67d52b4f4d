"""What a server does while it runs: each duty in a loop of its own."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trax.admin.cycle import manage
from trax.admin.manifest_manager import Turn
from trax.events import Topic
from trax.host.loop import Loop
from trax.host.sequential import Sequential
from trax.store import manifest_looks, take

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)


@asynccontextmanager
async def running(parts: Parts, store: Store) -> AsyncGenerator[None]:
    """Run every duty in this process until the block ends; then let what is under way end."""
    loops = [_manager(parts, store), _worker(parts, store)]
    stop_listening = [
        parts.events.listen(Topic.MANIFEST, loops[0].wake),
        parts.events.listen(Topic.WORK_QUEUE, loops[1].wake),
    ]
    tasks = [asyncio.create_task(loop.run(), name=f"trax {loop.name}") for loop in loops]
    try:
        yield
    finally:
        for stop in stop_listening:
            stop()
        for loop in loops:
            loop.stop()
        await asyncio.gather(*tasks)


def _manager(parts: Parts, store: Store) -> Loop:
    turns = 0

    async def turn() -> float | None:
        nonlocal turns
        if not parts.settings.manifest_manager_enabled:
            return None
        turns += 1
        managed = await store.call(manage, store, parts.settings, Turn(turns))
        if managed is not None and managed.queued:
            parts.events.emit(Topic.WORK_QUEUE)
        if managed is not None and managed.more:
            return 0
        return await store.ask(_seconds_to_next_look, store)

    interval = parts.settings.manifest_manager_polling_interval.total_seconds
    return Loop("manifest_manager", turn, poll_seconds=interval)


def _worker(parts: Parts, store: Store) -> Loop:
    worker = Sequential(parts, store)

    async def turn() -> float | None:
        if await worker.work():
            parts.events.emit(Topic.MANIFEST)
        return await store.ask(_seconds_to_next_entry, store)

    return Loop("worker", turn, poll_seconds=parts.settings.local_polling_interval.total_seconds)


def _seconds_to_next_look(connection: Connection, store: Store) -> float | None:
    return _seconds_until(manifest_looks.next_look(connection), store.now(connection))


def _seconds_to_next_entry(connection: Connection, store: Store) -> float | None:
    return _seconds_until(take.next_moment(connection), store.now(connection))


def _seconds_until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
