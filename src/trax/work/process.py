"""One process for cpu trains, as the worker sees it."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from multiprocessing.connection import wait
from threading import Lock
from typing import TYPE_CHECKING, Any

from trax.errors import ProcessDied
from trax.work.child import serve
from trax.work.messages import Answered, Asked, Ended, Ready, portable, unpacked

if TYPE_CHECKING:
    from trax.train import Outcome
    from trax.work.messages import Desk, Work

SPAWN = multiprocessing.get_context(
    "spawn"
)  # never fork: other threads hold locks nobody would release there
LEAVE_SECONDS = 2.0


class CpuProcess:
    """A process and the link to it. Its methods block, and may be called in any thread."""

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
    def lives(self) -> bool:
        return self._process.is_alive()

    def converse(self, work: Work, desk: Desk) -> Outcome[Any]:
        """Have the work done. Raises ProcessDied when the process does not survive that."""
        try:
            self.send(work)
            while True:
                match self._received():
                    case Ended(outcome):
                        return unpacked(outcome)
                    case Asked() as asked:
                        self._answer(asked, desk)
                    case Ready():
                        self._is_ready = True
                    case _:
                        pass
        except (EOFError, OSError):
            self._process.join()
            raise ProcessDied(self._cause_of_death()) from None
        except BaseException:
            self.kill()  # nobody knows what it waits for now
            self._process.join()
            raise

    def send(self, message: Any) -> None:
        with self._sending:
            self._link.send(message)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Let the process end; it does so when the link is closed, unless it is stuck."""
        self._link.close()
        self._process.join(LEAVE_SECONDS)
        if self.lives:
            self._process.kill()
            self._process.join()
        self._process.close()

    def _answer(self, asked: Asked, desk: Desk) -> None:
        try:
            value, error = desk[asked.what](*asked.arguments), None
        except Exception as raised:  # noqa: BLE001 - raised again in the run that asked
            value, error = None, portable(raised)
        if asked.number is not None:
            self.send(Answered(asked.number, value, error))

    def _received(self) -> Any:
        # Whatever the run has started may hold the link open beyond the life of the process itself.
        if self._link not in wait([self._link, self._process.sentinel]):
            raise EOFError
        return self._link.recv()

    def _cause_of_death(self) -> str:
        code = self._process.exitcode or 0
        if not self._is_ready:
            return (
                f"its process could not start (exit code {code}); see what it wrote to stderr. A script that "
                "starts Trax must do so under `if __name__ == '__main__':`"
            )
        if code >= 0:
            return f"its process ended itself with exit code {code}"
        name = str(-code)
        with suppress(ValueError):
            name = signal.Signals(-code).name
        return f"its process was killed by {name}" + (
            ", perhaps for want of memory" if name == "SIGKILL" else ""
        )
