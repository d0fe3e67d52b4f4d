"""The receiving end of a submitter: a worker that claims nothing, but takes up what it is handed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trax.errors import NotFound, TraxError, UnknownTrain
from trax.events import Topic
from trax.host import duties
from trax.host.checks import SLOTS_OR_NONE
from trax.host.worker import Worker
from trax.records.worker import WorkerKind
from trax.store.take_up import take_up, trains_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from trax.host.far import Far
    from trax.host.parts import Parts
    from trax.store import Connection
    from trax.store.claim import Claimed


class Receiver(Worker):
    """Takes up runs by their id. However often, and wherever, a run is handed over: it is executed once."""

    kind = WorkerKind.RECEIVER

    def __init__(self, *args: Any, far: Far | None = None, **more: Any) -> None:
        self._far = far
        super().__init__(*args, **more)
        self._writing = asyncio.Lock()

    async def take_up(self, metadata_id: int) -> bool:
        """Begin a run and return; False when it has begun elsewhere, or is over.

        Raises NotFound for a run that does not exist, and UnknownTrain for one that this process has no code
        for: it stays pending, and whoever handed it over learns that it was not taken. An input that its
        train refuses, or that is missing, is recorded as the failure it is.
        """
        (taken,) = await self.take_up_all([metadata_id])
        if isinstance(taken, TraxError):
            raise taken
        return taken

    async def take_up_all(self, metadata_ids: Sequence[int]) -> list[bool | TraxError]:
        """The same for several in one transaction; what `take_up` would raise for one is its answer."""
        if self._is_leaving or self._is_silent():
            raise TraxError(f"worker {self.id} takes nothing up: it is stopping, or has lost its database")
        async with self._claiming:
            jobs, refused = await self._store.call(self._take_up, metadata_ids)
            await self._pool.start(jobs)
        taken = {job.metadata_id for job in jobs}
        return [refused.get(one) or one in taken for one in metadata_ids]

    async def execute(self, metadata_id: int) -> bool:
        """The same, but return when the run has ended and that is written down; others may run beside it."""
        if not await self.take_up(metadata_id):
            return False
        while metadata_id in self._pool.known:
            runs = {run.job.metadata_id: run.task for run in self._pool.runs if run.task is not None}
            its_own = runs.get(metadata_id)  # none while it waits for a slot
            await asyncio.wait([its_own] if its_own else runs.values(), return_when=asyncio.FIRST_COMPLETED)
        await self.flush()
        await self._endings.told()
        return True

    async def idle(self) -> None:
        """Wait until all that was taken up has ended and is written down."""
        await self._pool.drained()
        await self.flush()
        await self._endings.told()

    async def flush(self) -> int:
        async with self._writing:  # so that whoever waits for an ending finds it written
            return await super().flush()

    def _take_up(
        self, connection: Connection, metadata_ids: Sequence[int]
    ) -> tuple[list[Claimed], dict[int, TraxError]]:
        trains, known = trains_of(connection, metadata_ids), self._parts.trains
        refused: dict[int, TraxError] = {
            one: UnknownTrain(train, known.names_and_aliases)
            for one, train in trains.items()
            if train not in known
        }
        absent = set(metadata_ids) - trains.keys()
        refused |= {one: NotFound(f"there is no execution {one}") for one in absent}
        fit, host = set(metadata_ids) - refused.keys(), self._parts.identity.host
        now = self._store.now(connection)
        return take_up(connection, fit, worker_id=self.id, host=host, now=now) if fit else [], refused


@asynccontextmanager
async def receiving(
    parts: Parts, *, concurrency: int | None = None, far: Far | None = None
) -> AsyncGenerator[Receiver]:
    """Beat and write down endings for what is taken up in the block; then let what runs end.

    With `far` the trains are executed there, and only the records are kept here.
    """
    SLOTS_OR_NONE("concurrency", concurrency)
    store = (await parts.store.opened()).engine_lane
    receiver = await Receiver.started(parts, store, concurrency, far=far)
    receiver.stay()
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
