# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""DBOS."""

from __future__ import annotations

import asyncio
import os

import sqlalchemy
from dbos import DBOS, DBOSClient, DBOSConfig

from bench.adapters import jobs
from bench.adapters.postgresql import PostgresqlAdapter

QUEUE = "bench"
VERSION = "bench"
CONCURRENCY = 100
"""Workflows at once: 20 and 500 are about half as fast."""
CONNECTIONS = 20
POLL_SECONDS = 0.02
"""It finds queued workflows by polling, once a second by default, which would be the whole figure."""


@DBOS.workflow(name="noop")
async def noop(number: int) -> None:
    jobs.do_nothing(number)


@DBOS.workflow(name="tell")
async def tell(asked: float) -> None:
    jobs.tell(asked)


class Contender(PostgresqlAdapter):
    """A workflow without steps for each job; inputs, results and states are kept (its default)."""

    LEFT = (
        "SELECT 1 FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
        " ORDER BY created_at DESC LIMIT 1"
    )

    async def open(self) -> None:
        self._address = self.url.replace("postgresql://", "postgresql+psycopg://")
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        DBOS.migrate(system_database_url=self._address)
        self._client = DBOSClient(system_database_url=self._address, application_name="bench")
        self._engine = sqlalchemy.create_engine(self._address)
        self._works = False

    async def add_many(self, count: int) -> None:
        await asyncio.to_thread(self._add_many, count)

    def _add_many(self, count: int) -> None:
        # It has no call for many: one transaction for all of them saves the most.
        with self._engine.begin() as connection:
            for number in range(count):
                self._client.enqueue_in_transaction(connection, _options("noop"), number)

    async def add_one(self) -> None:
        await self._client.enqueue_async(_options("noop"), 1)

    async def add_tell(self, asked: float) -> None:
        await self._client.enqueue_async(_options("tell"), asked)

    async def work(self) -> None:
        await asyncio.to_thread(self._work)

    def _work(self) -> None:
        config: DBOSConfig = {
            "name": "bench",
            "system_database_url": self._address,
            "application_version": VERSION,
            "executor_id": str(os.getpid()),
            "log_level": "ERROR",
            "sys_db_pool_size": CONNECTIONS,
            "run_migrations": False,
        }
        DBOS(config=config)
        DBOS.launch()
        DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_SECONDS)
        self._works = True

    async def close(self) -> None:
        if self._works:
            await asyncio.to_thread(DBOS.destroy)
        await super().close()


def _options(name: str) -> dict:
    return {"workflow_name": name, "queue_name": QUEUE, "app_version": VERSION}
