"""Several worker processes under one parent, which holds no database connection and runs no job itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

from trax.host.signals import STOPPING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
HEALTHY_SECONDS: Final = 60.0
"""Who lived so long is replaced without a long pause."""

AS_ASKED: Final = {0, *(-number for number in STOPPING)}
"""One that is asked before it has begun to listen to signals ends by the signal itself."""

KILLING: Final = 3
"""The signal, counted, that the processes cannot put off."""


async def keep_running(
    command: Sequence[str],
    count: int,
    *,
    environment: Mapping[str, str] | None = None,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> int:
    """Run the command in so many processes until this one is asked to end; returns the exit code.

    0 when all of them ended as asked, 1 when one did not.
    """
    fleet = Fleet(command, {**os.environ, **(environment or {})}, pause)
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, fleet.pass_on, number)
    try:
        return await fleet.run(count)
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)


class Fleet:
    """Keeps so many processes alive; one that dies is replaced, the sooner the longer it lived."""

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
        self._asked = asyncio.Event()
        self._signals = 0

    def pass_on(self, number: int) -> None:
        """Ask every process to end; from the third time on, end it."""
        self._signals += 1
        self._asked.set()
        for process in self._running:
            process.send_signal(signal.SIGKILL if self._signals >= KILLING else number)

    async def run(self, count: int) -> int:
        codes = await asyncio.gather(*(self._keep(place) for place in range(1, count + 1)))
        return 0 if not any(codes) else 1

    async def _keep(self, place: int) -> int:
        """Run one process after the other in this place; returns how the last one ended."""
        failures = 0
        while True:
            began = asyncio.get_running_loop().time()
            code = await self._run_one(place)
            if self._asked.is_set():
                return 0 if code in AS_ASKED else code
            lived = asyncio.get_running_loop().time() - began
            failures = 1 if lived > HEALTHY_SECONDS else failures + 1
            seconds = PAUSES[min(failures, len(PAUSES)) - 1]
            logger.warning("worker process %s %s; the next one starts in %s s", place, _ended(code), seconds)
            if not await self._paused(seconds):
                return code

    async def _run_one(self, place: int) -> int:
        # A session of its own: Ctrl-C in a terminal reaches the parent only, which passes it on once.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            env=dict(self._environment),
            start_new_session=True,
        )
        self._running.add(process)
        if self._asked.is_set():  # it was asked while this one was being made
            process.send_signal(signal.SIGTERM)
        logger.info("worker process %s runs as %s", place, process.pid)
        try:
            return await process.wait()
        finally:
            self._running.discard(process)

    async def _paused(self, seconds: float) -> bool:
        """Wait before the next one; False when there shall be none."""
        waits = [asyncio.ensure_future(self._pause(seconds)), asyncio.ensure_future(self._asked.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._asked.is_set()


def end_with_parent() -> None:
    """Ask this process to end when its parent is gone, however that ended: its end of our input closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass  # nobody writes; what counts is the end
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="trax parent", daemon=True).start()


def _ended(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
