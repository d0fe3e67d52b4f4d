"""Celery put through the scenarios: its submitter, and a Celery worker in a process of its own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from tests.support import celery_worker
from tests.support.preloaded_engine import PreloadedEngine

from trax.records.states import State
from trax.remote.celery import CeleryWorkers
from trax.store.schema import tables

if TYPE_CHECKING:
    from trax import Trax
    from trax.store import Connection
    from trax.testing.submitter_contract import ScenarioHarness, Workspace


class CeleryEngine(PreloadedEngine):
    """A broker by its address, or a folder, and what a worker is told when it starts."""

    def __init__(self, broker: str, *options: str, queue: str = "jobs") -> None:
        self._broker = broker
        self._queue = queue
        self._options = options

    def submitter(self, app: Trax) -> CeleryWorkers:
        del app
        tasks = celery_worker.celery_app(self._broker, self._queue)
        assert tasks.connection_for_write().transport  # loads the driver, which takes longer than a hand-over
        return CeleryWorkers(tasks)

    async def start(self, site: Workspace) -> None:
        words = ["-m", celery_worker.__name__, *self._options]
        where = {celery_worker.BROKER: self._broker, celery_worker.QUEUE: self._queue}
        await self.launch(*words, site=site, **where)

    async def kill(self) -> None:
        """The worker and the processes it has forked: together they are the far side."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await super().kill()


async def are_handed_over(harness: ScenarioHarness, count: int) -> bool:
    def handed_over(connection: Connection) -> int:
        submitted_at = tables(connection).metadata.c.submitted_at
        return connection.execute(select(func.count(submitted_at))).scalar_one()

    store = await harness.app.context.store.open()
    return await store.ask(handed_over) == count


async def has_failed(harness: ScenarioHarness, name: str) -> bool:
    return any(one.state is State.FAILED for one in await harness.records(name))
