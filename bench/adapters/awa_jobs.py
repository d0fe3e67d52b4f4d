# pyright: basic, reportMissingImports=false
# The peer is installed in an environment of its own, which the type checker does not see.
"""awa: a queue in Rust with a binding for Python."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from awa import AsyncClient

from bench.adapters import jobs
from bench.adapters.postgresql import PostgresqlAdapter

WORKERS = 500
BATCH = 500
"""Half as fast again as batches of 200; a second claimer gains nothing for one queue."""
QUEUE = "bench"


@dataclass
class Noop:
    number: int


@dataclass
class Tell:
    asked: float


class Contender(PostgresqlAdapter):
    """Its queue storage, which new installations get, and COPY for many jobs."""

    # How many were completed, in batches and in what was summed up of them, beside how many were queued;
    # its view of jobs takes seconds.
    LEFT = (
        "SELECT 1 WHERE (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)"
        " + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)"
        " < (SELECT sum(pg_sequence_last_value(('awa.' || seq_name)::regclass)) FROM awa.queue_enqueue_heads)"
    )

    async def open(self) -> None:
        self._client = AsyncClient(self.url)
        await self._client.migrate()
        if json.loads(await self._client.storage_status())["active_engine"] != "queue_storage":
            await self._client.install_queue_storage()

        @self._client.task(Noop, queue=QUEUE)
        async def noop(job: Any) -> None:
            jobs.do_nothing(job)

        @self._client.task(Tell, queue=QUEUE)
        async def tell(job: Any) -> None:
            jobs.tell(job.args.asked)

    async def add_many(self, count: int) -> None:
        await self._client.enqueue_many_copy([Noop(number) for number in range(count)], queue=QUEUE)

    async def add_one(self) -> None:
        await self._client.insert(Noop(1), queue=QUEUE)

    async def add_tell(self, asked: float) -> None:
        await self._client.insert(Tell(asked), queue=QUEUE)

    async def work(self) -> None:
        await self._client.start([{"name": QUEUE, "max_workers": WORKERS, "claim_batch_size": BATCH}])
        self._works = True

    async def close(self) -> None:
        if hasattr(self, "_works"):
            await self._client.shutdown()
        await super().close()
        await self._client.close()
