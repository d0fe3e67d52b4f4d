"""The worker of a simulated server: a real one, with slots in which nothing runs.

How long a run takes and how it ends is drawn. Claims, results, heartbeats and orphans are those of a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trax.events import Topic
from trax.inspect.simulation import list_ids, outcome_of
from trax.records.result import RunResult
from trax.store.runs.claim import Claimed
from trax.train import Cancelled, Done, Interrupted, Outcome
from trax.worker.job_runner import build_result, success_result
from trax.worker.pool import Pool
from trax.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.inspect.virtual_server import VirtualServer
    from trax.worker.results import WriteResults

RESULTS_PAUSE: Final = timedelta(milliseconds=5)
"""Results of runs that end together are written together."""


@dataclass(slots=True)
class DrawnRun:
    """A run that this server executes, and how it will end."""

    job: Claimed
    outcome: Outcome[Any]


class SimulatedPool(Pool[Claimed, RunResult]):
    """The slots of a simulated worker: no job waits for one, and none is executed."""

    def __init__(
        self, size: int, server: VirtualServer, build: Callable[[Claimed, Outcome[Any]], RunResult]
    ) -> None:
        unused: Any = None
        super().__init__(size, unused, unused, on_ended=unused, default_timeout=unused)
        self.drawn: dict[int, DrawnRun] = {}
        """The active runs, and how they will end."""
        self._active: Any = self.drawn
        self._server = server
        self._build = build

    @property
    def has_enough_backlog(self) -> bool:
        """Whether all slots are in use."""
        return not self.free

    def adjust_prefetch(self, *_: Any, **__: Any) -> None:
        """Claim nothing ahead."""

    def add(self, jobs: Sequence[Claimed]) -> None:
        """Execute the jobs: draw what their code does, and let it end then, or at the timeout."""
        server = self._server
        if jobs:
            server.log("worker: runs %s started", list_ids(job.metadata_id for job in jobs))
        default = server.context.settings.default_job_timeout.total_seconds()
        for job in jobs:
            server.simulation.observer.on_start(server, job.metadata_id)
            seconds, raised = server.workload.draw(job, server)
            limit = default if job.timeout_seconds is None else job.timeout_seconds
            outcome = outcome_of(job, raised)
            if seconds > limit:
                seconds, outcome = limit, Cancelled("timed out", timed_out=True)
            self.drawn[job.metadata_id] = DrawnRun(job, outcome)
            server.after(seconds, partial(self._end, job.metadata_id))

    def cancel(self, metadata_id: int, reason: str, *, timed_out: bool = False) -> None:
        self._end_early(metadata_id, Cancelled(reason, timed_out=timed_out))

    def interrupt_all(self, reason: str) -> None:
        for metadata_id in list(self.drawn):
            self._end_early(metadata_id, Interrupted(reason))

    def _end_early(self, metadata_id: int, outcome: Outcome[Any]) -> None:
        if run := self.drawn.get(metadata_id):
            run.outcome = outcome
            self._end(metadata_id)

    def _end(self, metadata_id: int) -> None:
        """The code of a run has ended: its result waits to be written."""
        run = self.drawn.pop(metadata_id, None)
        if run is None:
            return
        result, server = self._build(run.job, run.outcome), self._server
        server.log("worker: run %s ended: %s %s", metadata_id, result.kind, result.failure_exception or "")
        self._results.append(result)
        self.ended_count += 1
        if not self._is_announced:
            self._is_announced = True
            announce = partial(server.context.events.emit, Topic.ENDED)
            server.simulation.after_others(RESULTS_PAUSE, announce, server)


class SimulatedWorker(Worker):
    """The worker of one simulated server."""

    def __init__(self, *args: Any, server: VirtualServer, **more: Any) -> None:
        self._server = server
        super().__init__(*args, **more)

    @property
    def is_drained(self) -> bool:
        """Whether no run is left, and no result to write."""
        return not self._run_ids()

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_stopping = True

    async def flush(self, write: WriteResults | None = None) -> int:
        count = len(self._pool.results)
        recorded = await super().flush(write)
        if count:
            self._server.log("worker: %s of %s results written", recorded, count)
        return recorded

    def _new_pool(self) -> SimulatedPool:
        self.pool = SimulatedPool(self._slots, self._server, self._build_result)
        return self.pool

    def _build_result(self, job: Claimed, outcome: Outcome[Any]) -> RunResult:
        if isinstance(outcome, Done):
            return success_result(job, None, worker_id=self.id, junctions=None)
        train = self._context.trains.get(job.train)
        return build_result(job, outcome, train, self._context, worker_id=self.id)
