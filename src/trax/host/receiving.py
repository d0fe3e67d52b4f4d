"""The receiving end of a submitter: a worker that claims nothing, but takes up what it is handed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trax.errors import NotFound, TraxError
from trax.events import Topic
from trax.host import duties
from trax.host.worker import Worker
from trax.store.take_up import take_up, train_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trax.host.parts import Parts
    from trax.store import Connection
    from trax.store.claim import Claimed


class Receiver(Worker):
    """Takes up runs by their id. However often, and wherever, a run is handed over: it is executed once."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._writing = asyncio.Lock()

    async def take_up(self, metadata_id: int) -> bool:
        """Begin a run and return; False when it has begun elsewhere, or is over.

        Raises NotFound for a run that does not exist, and UnknownTrain for one that this process has no code
        for: it stays pending, and whoever handed it over learns that it was not taken. An input that its
        train refuses, or that is missing, is recorded as the failure it is.
        """
        if self._is_leaving or self._is_silent():
            raise TraxError(f"worker {self.id} takes nothing up: it is stopping, or has lost its database")
        async with self._claiming:
            job = await self._store.call(self._take_up, metadata_id)
            if job is None:
                return False
            await self._pool.start([job])
        return True

    async def idle(self) -> None:
        """Wait until all that was taken up has ended and is written down."""
        await self._pool.drained()
        await self.flush()
        await self._endings.told()

    async def flush(self) -> int:
        async with self._writing:  # so that whoever waits for an ending finds it written
            return await super().flush()

    def _take_up(self, connection: Connection, metadata_id: int) -> Claimed | None:
        train = train_of(connection, metadata_id)
        if train is None:
            raise NotFound(f"there is no execution {metadata_id}")
        self._parts.trains.get(train)
        now = self._store.now(connection)
        host = self._parts.identity.host
        return take_up(connection, metadata_id, worker_id=self.id, host=host, now=now)


@asynccontextmanager
async def receiving(parts: Parts, *, concurrency: int | None = None) -> AsyncGenerator[Receiver]:
    """Beat and write down endings for what is taken up in the block; then let what runs end."""
    store = await parts.store.opened()
    receiver = await Receiver.started(parts, store, concurrency)
    finisher = duties.finisher(parts, store, receiver, None)
    heartbeat = duties.heartbeat(parts, receiver)
    wakes = (
        parts.events.listen(Topic.ENDED, finisher.wake),
        parts.events.listen(Topic.CANCEL, heartbeat.wake),
    )
    tasks = [asyncio.create_task(loop.run(), name=f"trax {loop.name}") for loop in (finisher, heartbeat)]
    try:
        yield receiver
    finally:
        await receiver.drain(parts.settings.shutdown_timeout.total_seconds())
        for loop in (finisher, heartbeat):
            loop.stop()
        await asyncio.gather(*tasks)
        for forget in wakes:
            forget()
        await receiver.leave()
