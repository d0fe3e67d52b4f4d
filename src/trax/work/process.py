"""Worker side of a cpu process: start it, run jobs in it, stop it."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from multiprocessing.connection import wait
from threading import Lock
from typing import TYPE_CHECKING, Any

from trax.errors import ProcessDied
from trax.work.child import serve
from trax.work.messages import (
    ProcessReady,
    RunEnded,
    WorkerRequest,
    WorkerResponse,
    portable_error,
    unpack_outcome,
)

if TYPE_CHECKING:
    from trax.train import Outcome
    from trax.work.messages import ExecuteRequest, RequestHandlers

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
                    case WorkerRequest() as asked:
                        self._handle_request(asked, handlers)
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
