"""Start the driver process that is connected to Ray, and exchange lines with it.

Ray kills a process that is connected to a cluster when the cluster goes away. That must not happen to a
scheduler, so a separate process holds the connection.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TextIO

from trax.errors import TraxError

LEAVE_SECONDS: Final = 5
PROGRAM: Final = "trax.submitters.ray.driver"


class DriverLink:
    """One JSON line per request and per response. The driver ends with this process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must not reach it: batches in progress are still submitted
        )
        assert self._process.stdin  # noqa: S101 - PIPE was passed
        assert self._process.stdout  # noqa: S101
        self._questions = self._process.stdin
        self._answers: SimpleQueue[str] = SimpleQueue()
        listening = Thread(
            target=self._read_lines, args=(self._process.stdout,), name="trax ray link", daemon=True
        )
        listening.start()
        with suppress(OSError):  # the first request will report that it has ended
            self._write_line(config)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def request(self, message: Any, seconds: float) -> dict[str, Any]:
        """Send a request and wait for the response; TraxError if Ray fails or does not respond."""
        try:
            self._write_line(message)
            line = self._answers.get(timeout=seconds)
        except Empty:
            raise TraxError(f"Ray did not respond within {seconds:g} s") from None
        except OSError:
            line = ""
        if not line:
            raise TraxError("connection to Ray lost; see stderr of the driver process")
        response = json.loads(line)
        if "failed" in response:
            raise TraxError(f"Ray rejected the request: {response['failed']}")
        return response

    def close(self) -> None:
        """Close stdin, which ends the driver; kill it if Ray keeps it alive."""
        with suppress(OSError):  # it may have ended before reading everything
            self._questions.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_line(self, message: Any) -> None:
        self._questions.write(json.dumps(message) + "\n")
        self._questions.flush()

    def _read_lines(self, output: TextIO) -> None:
        with output:
            for line in output:
                self._answers.put(line)
        self._answers.put("")
