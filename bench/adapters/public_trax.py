"""Trax in the public queue benchmark: all roles in one process, limits on, records kept."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from bench.adapters.public_queue import System
from bench.filling import GLOBAL_LIMIT
from trax import Retry, Trax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.adapters.public_queue import Job

END_SECONDS: Final = 2
"""The benchmark gives five seconds from SIGTERM to the end; up to 1.5 of them are for the last call."""
RETRY: Final = Retry(max_retries=100, delay=timedelta(seconds=1), multiplier=1.0)
"""A job whose process was killed comes back as soon as its worker is known to be lost."""


class PublicJob(BaseModel):
    seq: int
    created_at: float
    padding: str


class PublicSystem(System):
    NAME = "trax"
    PACKAGE = "trax-scheduler"
    TABLES = ("trax.work_queue", "trax.metadata", "trax.worker")
    DEPTH = "SELECT count(*) FROM trax.work_queue WHERE status = 'queued'"

    async def open(self) -> None:
        self._app = Trax(
            self.contract.url,
            local_worker_count=self.contract.workers,
            max_active_jobs=GLOBAL_LIMIT,
            shutdown_timeout=timedelta(seconds=END_SECONDS),
        )
        run_job = self.run_job

        @self._app.train(retry=RETRY)
        async def public_job(job: PublicJob) -> None:
            await run_job(job.created_at)

        self._train: Any = public_job
        await self._app.context.store.open()

    async def add(self, jobs: Sequence[Job]) -> None:
        await self._app.queue_many(self._train, [PublicJob.model_validate(job) for job in jobs])

    async def work(self) -> None:
        await self._app.start()
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self._app.stop()
