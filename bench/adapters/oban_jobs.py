# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""Oban for Python, without Oban Pro."""

from __future__ import annotations

from typing import Any

from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.adapters import jobs
from bench.adapters.postgresql import PostgresqlAdapter

LIMIT = 500
"""Jobs at once, and so in one fetch; it stores their ends with the next one. 100 are a tenth slower."""


@worker(queue="bench")
class Noop:
    async def process(self, job: Any) -> None:
        jobs.do_nothing(job)


@worker(queue="bench")
class Tell:
    async def process(self, job: Any) -> None:
        jobs.tell(job.args["asked"])


class Contender(PostgresqlAdapter):
    """Its own schema, finished jobs kept for a day (its default)."""

    LEFT = (
        "SELECT 1 FROM (SELECT state FROM oban_jobs ORDER BY id DESC LIMIT 1) newest"
        " WHERE state IN ('available', 'executing')"
        " UNION ALL SELECT 1 FROM oban_jobs WHERE state IN ('available', 'executing') LIMIT 1"
    )

    async def open(self) -> None:
        self._pool = AsyncConnectionPool(self.url, min_size=2, max_size=10, open=False)
        await self._pool.open()
        async with self._pool.connection() as connection:
            found = await connection.execute("SELECT to_regclass('oban_jobs')")
            is_installed = (await found.fetchone())[0] is not None
        if not is_installed:
            await install(self._pool)
        self._client = Oban(pool=self._pool, name="client")
        self._server: Oban | None = None

    async def add_many(self, count: int) -> None:
        await self._client.enqueue_many([Noop.new({"number": number}) for number in range(count)])

    async def add_one(self) -> None:
        await self._client.enqueue(Noop.new({"number": 1}))

    async def add_tell(self, asked: float) -> None:
        await self._client.enqueue(Tell.new({"asked": asked}))

    async def work(self) -> None:
        server = Oban(pool=self._pool, queues={"bench": LIMIT})
        await server.start()
        self._server = server

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop()
        await super().close()
        await self._pool.close()
