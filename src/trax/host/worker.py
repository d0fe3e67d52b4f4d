"""A worker: claims pending runs into its slots, writes their endings in batches, and says that it lives."""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import TYPE_CHECKING, Final, Self

from trax.admin.finishing import finish
from trax.events import Topic
from trax.host.job import Finished, JobRunner
from trax.store import claim, workers
from trax.work.pool import Pool

if TYPE_CHECKING:
    from trax.host.parts import Parts
    from trax.store import Connection, Store
    from trax.store.claim import Claimed

logger = logging.getLogger(__name__)

HOST: Final = socket.gethostname()


class Worker:
    """The slots of one process. Each of its turns is one short transaction."""

    def __init__(self, parts: Parts, store: Store, worker_id: int, slots: int) -> None:
        self._parts = parts
        self._store = store
        self.id = worker_id
        self._runner = JobRunner(parts, store, worker_id)
        self._pool: Pool[Claimed, Finished] = Pool(
            slots, self._runner.execute, lambda: parts.events.emit(Topic.ENDED)
        )

    @classmethod
    async def started(cls, parts: Parts, store: Store, slots: int | None = None) -> Self:
        """Register a worker: its id is new at each start, so nobody mistakes it for an earlier one."""
        slots = slots or parts.settings.local_worker_count or os.cpu_count() or 1
        return cls(parts, store, await store.call(_register, store, parts, slots), slots)

    async def claim(self) -> int:
        """Fill the free slots; returns how many runs were taken."""
        if not self._pool.free:
            return 0
        jobs = await self._store.call(self._claim, self._pool.free)
        await self._pool.start(jobs)
        return len(jobs)

    async def flush(self) -> int:
        """Write down what has ended, all of it at once, and then tell the hooks."""
        finished = self._pool.collect()
        if not finished:
            return 0
        written = await self._store.call(self._finish, finished)
        for one in written:
            await self._runner.tell(one)
        return len(written)

    async def beat(self) -> None:
        """Say that this worker lives, and stop the runs that somebody wants stopped."""
        lives, to_stop = await self._store.call(self._beat)
        if not lives:
            logger.warning("worker %s was taken for dead; its late results will be refused", self.id)
        for metadata_id in to_stop:
            self._pool.cancel(metadata_id, "cancelled by request")

    async def drain(self, seconds: float) -> None:
        """Let what runs end; what takes too long is interrupted and goes back to the queue."""
        if not await self._pool.drained(seconds):
            self._pool.interrupt_all("the worker stops")
            await self._pool.drained()
        await self.flush()

    async def leave(self) -> None:
        """Take the worker's row away: nobody needs to watch it any more."""
        await self._store.call(workers.remove, self.id)

    async def run_all(self) -> int:
        """Claim and run everything pending, then return how many runs that were."""
        done = 0
        while await self.claim():
            await self._pool.drained()
            done += await self.flush()
        return done

    def _claim(self, connection: Connection, slots: int) -> list[Claimed]:
        return claim.claim(
            connection,
            worker_id=self.id,
            host=HOST,
            slots=slots,
            trains=self._parts.trains.names_and_aliases,
            now=self._store.now(connection),
        )

    def _finish(self, connection: Connection, finished: list[Finished]) -> list[Finished]:
        ended = [one.ended for one in finished]
        now = self._store.now(connection)
        ours = {one.ending.metadata_id for one in finish(connection, ended, self._parts.settings, now=now)}
        return [one for one in finished if one.ended.ending.metadata_id in ours]

    def _beat(self, connection: Connection) -> tuple[bool, list[int]]:
        now = self._store.now(connection)
        return workers.beat(connection, self.id, now=now), claim.to_cancel(connection, self.id)


def _register(connection: Connection, store: Store, parts: Parts, slots: int) -> int:
    columns = {
        "host": HOST,
        "host_environment": "server",
        "host_instance_id": f"{HOST}-{os.getpid()}",
        "pid": os.getpid(),
        "concurrency": slots,
        "trains": json.dumps(parts.trains.names),
    }
    return workers.register(connection, columns, now=store.now(connection))
