"""Run several worker processes under one parent, which has no database connection and runs no jobs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

from trax.worker.loop import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

logger = logging.getLogger(__name__)
PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
HEALTHY_SECONDS: Final = 60.0
"""A process that ran this long resets the restart pause."""

NORMAL_EXIT_CODES: Final = {0, *(-number for number in STOP_SIGNALS)}
"""A process that is stopped before it handles signals is ended by the signal itself."""

KILL_FROM_SIGNAL: Final = 3
"""From this stop signal on, the processes are killed."""


async def keep_running(
    command: Sequence[str],
    count: int,
    *,
    environment: Mapping[str, str] | None = None,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> int:
    """Run the command in `count` processes until this one gets a stop signal; returns the exit code.

    The code is 0 if all processes stopped normally, else 1.
    """
    processes = WorkerProcesses(command, {**os.environ, **(environment or {})}, pause)
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, processes.forward_signal, number)
    try:
        return await processes.run(count)
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


class WorkerProcesses:
    """Keeps `count` processes running; restarts one that ends, with a longer pause after each early end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._command = command
        self._environment = environment
        self._pause = pause
        self._running: set[asyncio.subprocess.Process] = set()
        self._stop_requested = asyncio.Event()
        self._signals = 0

    def forward_signal(self, number: int) -> None:
        """Send the signal to every process; from the third signal on, kill them."""
        self._signals += 1
        self._stop_requested.set()
        for process in self._running:
            process.send_signal(signal.SIGKILL if self._signals >= KILL_FROM_SIGNAL else number)

    async def run(self, count: int) -> int:
        codes = await asyncio.gather(*(self._supervise(place) for place in range(1, count + 1)))
        return 0 if not any(codes) else 1

    async def _supervise(self, number: int) -> int:
        """Run process number `place` and restart it when it ends; returns the last exit code."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._run_process(number)
            if self._stop_requested.is_set():
                return 0 if code in NORMAL_EXIT_CODES else code
            uptime = asyncio.get_running_loop().time() - began
            failures = 1 if uptime > HEALTHY_SECONDS else failures + 1
            seconds = PAUSES[min(failures, len(PAUSES)) - 1]
            logger.warning("worker process %s %s; restarting in %s s", number, _describe_exit(code), seconds)
            if not await self._pause_before_restart(seconds):
                return code

    async def _run_process(self, number: int) -> int:
        # Its own session: Ctrl-C in a terminal reaches only the parent, which forwards it once.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            env=dict(self._environment),
            start_new_session=True,
        )
        self._running.add(process)
        if self._stop_requested.is_set():  # the stop signal came while the process was starting
            process.send_signal(signal.SIGTERM)
        logger.info("worker process %s started: pid %s", number, process.pid)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)

    async def _pause_before_restart(self, seconds: float) -> bool:
        """Wait before a restart; False if a stop signal came."""
        waits = [
            asyncio.ensure_future(self._pause(seconds)),
            asyncio.ensure_future(self._stop_requested.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._stop_requested.is_set()


def end_with_parent() -> None:
    """Stop this process when its parent is gone: stdin closes, however the parent ended."""

    def watch() -> None:
        while os.read(0, 1):
            pass  # only end of file matters
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="trax parent", daemon=True).start()


def _describe_exit(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
