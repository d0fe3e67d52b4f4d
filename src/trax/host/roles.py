"""What a server does while it runs: each duty in a loop of its own, and who wakes whom.

manager ──queued──► dispatcher ──admitted──► claimer ──ended──► finisher ──► the three before it
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trax.admin.cycle import manage
from trax.admin.dead_letter_cleanup import clean_dead_letters
from trax.admin.job_dispatcher import dispatch
from trax.admin.manifest_manager import Turn
from trax.events import Topic
from trax.host.loop import Loop
from trax.host.worker import Worker
from trax.store import manifest_looks, work_queue

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping
    from datetime import datetime

    from trax.host.parts import Parts
    from trax.store import Connection, Store

CLEAN_UP_SECONDS = 3600


@asynccontextmanager
async def running(parts: Parts, store: Store) -> AsyncGenerator[None]:
    """Run every duty in this process until the block ends; then let what is under way end."""
    worker = await Worker.started(parts, store)
    manager, dispatcher = _manager(parts, store), _dispatcher(parts, store)
    claimer, finisher = _claimer(parts, worker), _finisher(parts, worker)
    loops = (manager, dispatcher, claimer, finisher, _heartbeat(parts, worker), _cleaner(parts, store))
    wakes = (
        parts.events.listen(Topic.MANIFEST, manager.wake),
        parts.events.listen(Topic.WORK_QUEUE, dispatcher.wake),
        parts.events.listen(Topic.PENDING, claimer.wake),
        parts.events.listen(Topic.ENDED, finisher.wake),
    )
    tasks = {loop: asyncio.create_task(loop.run(), name=f"trax {loop.name}") for loop in loops}
    try:
        yield
    finally:
        # First no new work; what runs is still beaten for and written down while it drains.
        await _stopped((manager, dispatcher, claimer), tasks)
        await worker.drain(parts.settings.shutdown_timeout.total_seconds())
        await _stopped(tasks, tasks)
        for forget in wakes:
            forget()
        await worker.leave()


async def _stopped(loops: Iterable[Loop], tasks: Mapping[Loop, asyncio.Task[None]]) -> None:
    loops = list(loops)
    for loop in loops:
        loop.stop()
    await asyncio.gather(*(tasks[loop] for loop in loops))


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


def _dispatcher(parts: Parts, store: Store) -> Loop:
    async def turn() -> float | None:
        if not parts.settings.job_dispatcher_enabled:
            return None
        dispatched = await store.call(dispatch, store, parts.settings, parts.routing)
        if dispatched.changed:
            parts.events.emit(Topic.PENDING)
        if dispatched.more:
            return 0
        return await store.ask(_seconds_to_next_entry, store)

    interval = parts.settings.job_dispatcher_polling_interval.total_seconds
    return Loop("job_dispatcher", turn, poll_seconds=interval)


def _claimer(parts: Parts, worker: Worker) -> Loop:
    async def turn() -> None:
        await worker.claim()

    return Loop("claimer", turn, poll_seconds=parts.settings.local_polling_interval.total_seconds)


def _finisher(parts: Parts, worker: Worker) -> Loop:
    async def turn() -> None:
        if await worker.flush():
            for topic in (Topic.MANIFEST, Topic.WORK_QUEUE, Topic.PENDING):
                parts.events.emit(topic)

    return Loop("finisher", turn, poll_seconds=parts.settings.local_polling_interval.total_seconds)


def _heartbeat(parts: Parts, worker: Worker) -> Loop:
    return Loop("heartbeat", worker.beat, poll_seconds=parts.settings.heartbeat_interval.total_seconds)


def _cleaner(parts: Parts, store: Store) -> Loop:
    async def turn() -> None:
        await store.call(clean_dead_letters, store, parts.settings)

    return Loop("dead_letter_cleanup", turn, poll_seconds=lambda: CLEAN_UP_SECONDS)


def _seconds_to_next_look(connection: Connection, store: Store) -> float | None:
    return _seconds_until(manifest_looks.next_look(connection), store.now(connection))


def _seconds_to_next_entry(connection: Connection, store: Store) -> float | None:
    return _seconds_until(work_queue.next_moment(connection), store.now(connection))


def _seconds_until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
