"""Celery put through the scenarios: its submitter, and a Celery worker in a process of its own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.support import celery_far

from trax.submitters.celery import CeleryWorkers
from trax.testing.submitter_contract import FarProcess

if TYPE_CHECKING:
    from trax import Trax
    from trax.testing.submitter_contract import Site


class CeleryEngine:
    """A broker by its address, or a folder, and what a worker is told when it starts."""

    def __init__(self, broker: str, *options: str) -> None:
        self._broker = broker
        self._options = options
        self._far: FarProcess | None = None

    def submitter(self, app: Trax) -> CeleryWorkers:
        del app
        tasks = celery_far.celery_app(self._broker)
        assert tasks.connection_for_write().transport  # loads the driver, which takes longer than a hand-over
        return CeleryWorkers(tasks)

    async def start(self, site: Site) -> None:
        words = ["-m", celery_far.__name__, *self._options]
        self._far = await FarProcess.started(*words, site=site, **{celery_far.BROKER: self._broker})

    async def stop(self) -> None:
        far, self._far = self._far, None
        if far is not None:
            await far.stop()

    async def kill(self) -> None:
        """The worker and the processes it has forked: together they are the far side."""
        far, self._far = self._far, None
        if far is not None:
            os.killpg(far.pid, signal.SIGKILL)
            await far.kill()
