"""The pool of processes for cpu trains: started on demand, reused, replaced when a run is killed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from trax.errors import ProcessDied, RunCancelled, RunInterrupted, RunTimedOut
from trax.train import Cancelled, Failed, Interrupted
from trax.train.cancellation import await_cancellable
from trax.train.failure import describe
from trax.work.messages import StopRequest
from trax.work.process import CpuProcess

if TYPE_CHECKING:
    from trax.train import Cancellation, Outcome
    from trax.work.messages import ExecuteRequest, RequestHandlers

GRACE_SECONDS = 2.0
"""How long a cancelled run may clean up before its process is killed."""


class CpuProcessPool:
    """A limited number of processes. Each run has its own, so killing it affects no other run."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._active = 0
        self._slots = asyncio.Semaphore(size)
        self._idle: list[CpuProcess] = []
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="trax-cpu")

    @property
    def free(self) -> int:
        """Number of runs that can start now."""
        return max(0, self._size - self._active)

    async def attempt(
        self, request: ExecuteRequest, token: Cancellation, handlers: RequestHandlers
    ) -> Outcome[Any]:
        """Run a job in a process; its requests are handled by `handlers`, in a thread."""
        self._active += 1
        try:
            return await await_cancellable(token, self._attempt(request, token, handlers))
        except RunCancelled as error:
            return Cancelled(str(error), isinstance(error, RunTimedOut), error=error)
        except RunInterrupted as error:
            return Interrupted(str(error), error=error)
        except ProcessDied as error:
            names = {"train": request.reference.train, "external_id": request.facts["external_id"]}
            return Failed(error, describe(error, **names, junction=None))
        finally:
            self._active -= 1

    async def close(self) -> None:
        """End the processes, which must be idle."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(asyncio.to_thread(process.close) for process in idle))
        self._threads.shutdown(wait=False)

    async def _attempt(
        self, request: ExecuteRequest, token: Cancellation, handlers: RequestHandlers
    ) -> Outcome[Any]:
        async with self._slots:
            process = await self._take_process()
            try:
                return await self._run_job(process, request, token, handlers)
            finally:
                if process.is_alive:
                    self._idle.append(process)
                else:
                    process.close()

    async def _take_process(self) -> CpuProcess:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            process.close()
        starting = asyncio.get_running_loop().run_in_executor(self._threads, CpuProcess)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._idle.append(await starting)
            raise

    async def _run_job(
        self, process: CpuProcess, request: ExecuteRequest, token: Cancellation, handlers: RequestHandlers
    ) -> Outcome[Any]:
        context = copy_context()  # log records of the process are handled in the context of the run
        job = asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(process.run_job, request, handlers)
        )
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await self._stop_run(process, job, request, token)
            if job.exception() is None and token.requested:
                return job.result()  # it has cleaned up, or was done
            raise

    async def _stop_run(
        self, process: CpuProcess, job: asyncio.Future[Any], request: ExecuteRequest, token: Cancellation
    ) -> None:
        """Request the run to stop; kill its process if it does not."""
        try:
            with suppress(OSError):  # the process has just exited
                process.send(_stop_request(request, token))
            await asyncio.wait([job], timeout=GRACE_SECONDS)
        finally:
            if not job.done():
                process.kill()
            await asyncio.wait([job])


def _stop_request(request: ExecuteRequest, token: Cancellation) -> StopRequest:
    interrupts = isinstance(token.error(), RunInterrupted)
    reason = token.reason or "the task around the run was cancelled"
    return StopRequest(request.metadata_id, reason, interrupts, token.timed_out)
