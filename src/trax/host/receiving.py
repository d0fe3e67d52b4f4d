"""Receive runs from a submitter: a worker that claims runs only by id."""

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
from trax.store.take_up import claim_by_id, trains_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from trax.host.far import RemoteExecutor
    from trax.host.parts import Parts
    from trax.store import Connection
    from trax.store.claim import Claimed


class Receiver(Worker):
    """Claims runs by id. A run is executed once, however often and wherever it is handed over."""

    kind = WorkerKind.RECEIVER

    def __init__(self, *args: Any, executor: RemoteExecutor | None = None, **more: Any) -> None:
        self._executor = executor
        super().__init__(*args, **more)
        self._writing = asyncio.Lock()

    async def claim_by_id(self, metadata_id: int) -> bool:
        """Start a run and return; False if it was started elsewhere or has ended.

        Raises NotFound for a run that does not exist, and UnknownTrain for one that this process has no code
        for: it stays pending, and the submitter gets the error. A missing or invalid input is recorded as a
        failed run.
        """
        (taken,) = await self.claim_by_ids([metadata_id])
        if isinstance(taken, TraxError):
            raise taken
        return taken

    async def claim_by_ids(self, metadata_ids: Sequence[int]) -> list[bool | TraxError]:
        """The same for several runs in one transaction; an error of a run is its element of the result."""
        if self._is_stopping or self._has_missed_heartbeats():
            raise TraxError(f"worker {self.id} claims no runs: it is stopping, or missed its heartbeat")
        async with self._claims:
            jobs, refused = await self._store.call(self._claim_ids, metadata_ids)
            await self._pool.start(jobs)
        taken = {job.metadata_id for job in jobs}
        return [refused.get(run_id) or run_id in taken for run_id in metadata_ids]

    async def execute(self, metadata_id: int) -> bool:
        """Start a run and wait until its result is written; other runs may run at the same time."""
        if not await self.claim_by_id(metadata_id):
            return False
        while metadata_id in self._pool.job_ids:
            runs = {run.job.metadata_id: run.task for run in self._pool.runs if run.task is not None}
            its_own = runs.get(metadata_id)  # None while it waits for a slot
            await asyncio.wait([its_own] if its_own else runs.values(), return_when=asyncio.FIRST_COMPLETED)
        await self.flush()
        await self._results.wait_for_hooks()
        return True

    async def wait_until_idle(self) -> None:
        """Wait until all claimed runs have ended and their results are written."""
        await self._pool.wait_until_idle()
        await self.flush()
        await self._results.wait_for_hooks()

    async def flush(self) -> int:
        async with self._writing:  # `execute` returns only after the result is written
            return await super().flush()

    def _claim_ids(
        self, connection: Connection, metadata_ids: Sequence[int]
    ) -> tuple[list[Claimed], dict[int, TraxError]]:
        trains, known = trains_of(connection, metadata_ids), self._parts.trains
        refused: dict[int, TraxError] = {
            run_id: UnknownTrain(train, known.names_and_aliases)
            for run_id, train in trains.items()
            if train not in known
        }
        absent = set(metadata_ids) - trains.keys()
        refused |= {run_id: NotFound(f"there is no execution {run_id}") for run_id in absent}
        fit, host = set(metadata_ids) - refused.keys(), self._parts.identity.host
        now = self._store.now(connection)
        return claim_by_id(connection, fit, worker_id=self.id, host=host, now=now) if fit else [], refused


@asynccontextmanager
async def run_receiver(
    parts: Parts, *, concurrency: int | None = None, executor: RemoteExecutor | None = None
) -> AsyncGenerator[Receiver]:
    """Run a receiver in the block, with its heartbeat and result loops; then drain it.

    With an `executor` the trains are executed there, and only their records are kept here.
    """
    SLOTS_OR_NONE("concurrency", concurrency)
    store = (await parts.store.open()).engine_lane
    receiver = await Receiver.start(parts, store, concurrency, executor=executor)
    receiver.start_heartbeat()
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
        for unsubscribe in wakes:
            unsubscribe()
        await receiver.unregister()
