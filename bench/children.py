"""Processes that a benchmark starts and controls: commands go to stdin, JSON lines come from stdout.

Both sides are here and use only the standard library, since a peer has an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Mapping

PROJECT: Final = Path(__file__).parent.parent
END_SECONDS: Final = 30
SILENT_SECONDS: Final = 300
BYTECODE: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installed package has its bytecode: no process compiles modules while it is measured."""


class ChildFailed(Exception):
    """A process ended before it sent an expected value."""


class Child:
    """A child process, as its parent sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._heard: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, word: str) -> None:
        """Send a command without waiting for its result."""
        into = cast("IO[str]", self._process.stdin)
        into.write(word + "\n")
        into.flush()

    def ask(self, words: str, name: str) -> Any:
        """Send a command, and wait for the value of this name."""
        self.tell(words)
        return self.hear(name)

    def hear(self, name: str) -> Any:
        """Wait for the value of this name; other values that arrive before it are kept.

        A child that sends nothing for too long is killed, so that no benchmark waits forever.
        """
        while name not in self._heard:
            line = self._line()
            if not line:
                raise ChildFailed(
                    f"process {self._process.pid} ended before it sent {name!r}; its error output is above"
                )
            self._heard |= json.loads(line)
        return self._heard.pop(name)

    def _line(self) -> str:
        watchdog = Timer(SILENT_SECONDS, self._process.kill)
        watchdog.start()
        try:
            return cast("IO[str]", self._process.stdout).readline()
        finally:
            watchdog.cancel()

    def end(self) -> None:
        """Close its stdin and wait for its end; kill it if it does not end in time."""
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def child(
    python: Path, module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Generator[Child]:
    """Start a process and wait until it is ready; leaving the block ends it."""
    with _spawn(python, module, *arguments, environment=environment) as process:
        process.hear("ready")
        yield process


@contextmanager
def children(count: int, python: Path, module: str, *arguments: str) -> Generator[list[Child]]:
    """Start several processes at once and wait until all are ready."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_spawn(python, module, *arguments)) for _ in range(count)]
        for process in processes:
            process.hear("ready")
        yield processes


@contextmanager
def _spawn(
    python: Path, module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Generator[Child]:
    with subprocess.Popen(
        [python, "-m", module, *arguments],
        cwd=PROJECT,
        env={**os.environ, **BYTECODE, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        started = Child(process)
        try:
            yield started
        finally:
            started.end()


def say(**values: Any) -> None:
    """In the child: send values to the parent."""
    print(json.dumps(values), flush=True)


async def words() -> AsyncIterator[str]:
    """In the child: the commands of the parent, until stdin ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line.strip()
