# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""PgQueuer."""

from __future__ import annotations

import asyncio
import json

import asyncpg
from pgqueuer import Job, PgQueuer, Queries

from bench.adapters import jobs
from bench.adapters.postgresql import PostgresqlAdapter

PAYLOAD = b'{"number":1}'
BATCH = 500
"""Its default of 10 takes five times as long; above 500 nothing is gained."""


class Contender(PostgresqlAdapter):
    """asyncpg with a pool, all tables logged (its default), its queue manager without its scheduler."""

    # A job leaves the table when it is done.
    LEFT = "SELECT 1 FROM pgqueuer ORDER BY id DESC LIMIT 1"

    def __init__(self, url: str, *, batch: int = BATCH) -> None:
        super().__init__(url)
        self._batch = batch

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=2, max_size=5)
        self._queries = Queries.from_asyncpg_pool(self._pool)
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def add_many(self, count: int) -> None:
        await self._queries.enqueue(["noop"] * count, [PAYLOAD] * count, [0] * count)

    async def add_one(self) -> None:
        await self._queries.enqueue("noop", PAYLOAD)

    async def add_tell(self, asked: float) -> None:
        await self._queries.enqueue("tell", json.dumps(asked).encode())

    async def work(self) -> None:
        self._peer = PgQueuer.from_asyncpg_pool(self._pool)

        @self._peer.entrypoint("noop")
        async def noop(job: Job) -> None:
            jobs.do_nothing(job)

        @self._peer.entrypoint("tell")
        async def tell(job: Job) -> None:
            jobs.tell(json.loads(job.payload or b"0"))

        self._working = asyncio.create_task(self._peer.qm.run(batch_size=self._batch))

    async def close(self) -> None:
        if hasattr(self, "_working"):
            self._peer.shutdown.set()
            await self._working
        await super().close()
        await self._pool.close()
