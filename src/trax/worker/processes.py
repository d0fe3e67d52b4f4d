"""Processes for cpu trains, worker side: start them, run jobs in them, stop them."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from multiprocessing.connection import wait
from threading import Lock
from typing import TYPE_CHECKING, Any

from trax.errors import ProcessDied, RunCancelled, RunInterrupted, RunTimedOut
from trax.train import Cancelled, Failed, Interrupted
from trax.train.context import await_cancellable
from trax.train.outcome import describe
from trax.worker.child import serve
from trax.worker.messages import (
    ProcessReady,
    RunEnded,
    StopRequest,
    WorkerRequest,
    WorkerResponse,
    portable_error,
    unpack_outcome,
)

if TYPE_CHECKING:
    from trax.train import Cancellation, Outcome
    from trax.worker.messages import ExecuteRequest, RequestHandlers


SPAWN = multiprocessing.get_context(
    "spawn"
)  # never fork: locks held by other threads would stay locked in the child
EXIT_SECONDS = 2.0


class CpuProcess:
    """A process and the link to it. Methods block; thread-safe."""

    def __init__(self) -> None:
        self._link, theirs = SPAWN.Pipe()
        self._sending = Lock()
        self._is_ready = False
        self._process = SPAWN.Process(target=serve, args=(theirs,), name="trax cpu", daemon=True)
        try:
            self._process.start()
        except BaseException:
            self._link.close()
            raise
        finally:
            theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def run_job(self, request: ExecuteRequest, handlers: RequestHandlers) -> Outcome[Any]:
        """Run one job and handle its requests. Raises ProcessDied if the process exits."""
        try:
            self.send(request)
            while True:
                match self._receive():
                    case RunEnded(outcome):
                        return unpack_outcome(outcome)
                    case WorkerRequest() as child_request:
                        self._handle_request(child_request, handlers)
                    case ProcessReady():
                        self._is_ready = True
                    case _:
                        pass
        except (EOFError, OSError):
            self._process.join()
            raise ProcessDied(self._exit_reason()) from None
        except BaseException:
            self.kill()  # its state is unknown
            self._process.join()
            raise

    def send(self, message: Any) -> None:
        with self._sending:
            self._link.send(message)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Close the link, which ends the process; kill it if it does not exit."""
        self._link.close()
        self._process.join(EXIT_SECONDS)
        if self.is_alive:
            self._process.kill()
            self._process.join()
        self._process.close()

    def _handle_request(self, request: WorkerRequest, handlers: RequestHandlers) -> None:
        try:
            value, error = handlers[request.handler](*request.arguments), None
        except Exception as raised:  # noqa: BLE001 - raised again in the run
            value, error = None, portable_error(raised)
        if request.number is not None:
            self.send(WorkerResponse(request.number, value, error))

    def _receive(self) -> Any:
        # A process started by the run may keep the link open after this one has exited.
        if self._link not in wait([self._link, self._process.sentinel]):
            raise EOFError
        return self._link.recv()

    def _exit_reason(self) -> str:
        code = self._process.exitcode or 0
        if not self._is_ready:
            return (
                f"the process could not start (exit code {code}); see its stderr. A script must start Trax "
                "under `if __name__ == '__main__':`"
            )
        if code >= 0:
            return f"the process exited with code {code}"
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"the process was killed by {name}" + (
            ", perhaps because memory ran out" if name == "SIGKILL" else ""
        )


GRACE_SECONDS = 2.0
"""How long a cancelled run may clean up before its process is killed."""


class CpuProcessPool:
    """A limited number of processes. Each run has its own, so killing it affects no other run."""

    def __init__(self, size: int) -> None:
        self._slots = asyncio.Semaphore(size)
        self._idle: list[CpuProcess] = []
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="trax-cpu")

    async def attempt(
        self, request: ExecuteRequest, token: Cancellation, handlers: RequestHandlers
    ) -> Outcome[Any]:
        """Run a job in a process; its requests are handled by `handlers`, in a thread."""
        try:
            return await await_cancellable(token, self._attempt(request, token, handlers))
        except RunCancelled as error:
            return Cancelled(str(error), isinstance(error, RunTimedOut), error=error)
        except RunInterrupted as error:
            return Interrupted(str(error), error=error)
        except ProcessDied as error:
            names = {"train": request.reference.train, "external_id": request.facts["external_id"]}
            return Failed(error, describe(error, **names, junction=None))

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
    return StopRequest(request.metadata_id, reason, interrupts, token.has_timed_out)
