# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""Procrastinate."""

from __future__ import annotations

import asyncio
import logging

import procrastinate

from bench.adapters import jobs
from bench.adapters.postgresql import PostgresqlAdapter

CONCURRENCY = 20
"""It fetches one job a statement: between 5 and 50 nothing changes."""
CONNECTIONS = 10


class Contender(PostgresqlAdapter):
    """Its psycopg connector with a pool, and finished jobs kept (its default)."""

    LEFT = (
        "SELECT 1 FROM (SELECT status FROM procrastinate_jobs ORDER BY id DESC LIMIT 1) newest"
        " WHERE status IN ('todo', 'doing')"
        " UNION ALL SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"
    )

    async def open(self) -> None:
        logging.disable(logging.INFO)  # it formats two lines for each job
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=2, max_size=CONNECTIONS)
        self._app = procrastinate.App(connector=connector)

        @self._app.task(name="noop")
        async def noop(number: int) -> None:
            jobs.do_nothing(number)

        @self._app.task(name="tell")
        async def tell(asked: float) -> None:
            jobs.tell(asked)

        self._noop, self._tell = noop, tell
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()

    async def add_many(self, count: int) -> None:
        await self._noop.batch_defer_async(*({"number": number} for number in range(count)))

    async def add_one(self) -> None:
        await self._noop.defer_async(number=1)

    async def add_tell(self, asked: float) -> None:
        await self._tell.defer_async(asked=asked)

    async def work(self) -> None:
        worker = self._app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        self._working = asyncio.create_task(worker)

    async def close(self) -> None:
        if hasattr(self, "_working"):
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        await super().close()
        await self._app.close_async()
