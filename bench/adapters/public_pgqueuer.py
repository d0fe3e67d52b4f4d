# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""PgQueuer in the public queue benchmark: asyncpg with a pool; its queue manager is restarted if it fails."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import asyncpg
from pgqueuer import Job as QueuedJob
from pgqueuer import PgQueuer, Queries

from bench.adapters.public_queue import System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.adapters.public_queue import Job

RESTART_SECONDS = 1
END_SECONDS = 3
ENTRYPOINT = "public_job"


class PublicSystem(System):
    NAME = "pgqueuer"
    PACKAGE = "pgqueuer"
    TABLES = ("public.pgqueuer", "public.pgqueuer_log", "public.pgqueuer_statistics")
    DEPTH = "SELECT count(*) FROM pgqueuer WHERE status = 'queued'"

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.contract.url, min_size=2, max_size=10)
        self._queries = Queries.from_asyncpg_pool(self._pool)
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def add(self, jobs: Sequence[Job]) -> None:
        payloads: list[bytes | None] = [json.dumps(job).encode() for job in jobs]
        await self._queries.enqueue([ENTRYPOINT] * len(jobs), payloads, [0] * len(jobs))

    async def work(self) -> None:
        """Like its command line with --restart-on-failure; batches as large as the jobs at once.

        Its own limit of tasks must be twice a batch and makes its query slower, so none is set.
        """
        while True:
            manager = PgQueuer.from_asyncpg_pool(self._pool).qm

            @manager.entrypoint(ENTRYPOINT)
            async def public_job(job: QueuedJob) -> None:
                await self.run_job(json.loads(job.payload or b"{}")["created_at"])

            try:
                await manager.run(batch_size=self.contract.workers)
            except Exception as error:  # noqa: BLE001 - whatever it was, it is started again
                print(f"[pgqueuer] the queue manager failed: {error!r}", file=sys.stderr, flush=True)
            except asyncio.CancelledError:
                manager.shutdown.set()
                raise
            await asyncio.sleep(RESTART_SECONDS)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
