"""Detect code that blocks the event loop, and log which run it belongs to.

While one run blocks the loop, all other runs wait, and so do results and timeouts.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.worker.active_run import ActiveRun

logger = logging.getLogger(__name__)

BLOCKED_SECONDS = 1.0
CHECKS_PER_WINDOW = 4
"""How many checks of the loop per `BLOCKED_SECONDS`."""

SHOWN_RUNS = 10
SHOWN_FRAMES = 12


class LoopWatch:
    """A thread that checks whether the event loop responds, while there are active runs."""

    def __init__(
        self, runs: Callable[[], Sequence[ActiveRun[Any]]], *, blocked_seconds: float = BLOCKED_SECONDS
    ) -> None:
        self._runs = runs
        self._blocked_seconds = blocked_seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._is_active = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_awake(self) -> bool:
        return self._is_active.is_set()

    def wake(self) -> None:
        """Watch until nothing runs. Cheap if the watch is awake."""
        if self._is_active.is_set():
            return
        self._is_active.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="trax loop watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._is_active.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._is_active.wait()
            self._check_loop()
            self._stopped.wait(self._blocked_seconds / CHECKS_PER_WINDOW)
            if not self._runs():
                self._is_active.clear()
                if self._runs():  # a run started in between and found the watch awake
                    self._is_active.set()

    def _check_loop(self) -> None:
        began, response = time.monotonic(), threading.Event()
        if self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(response.set)
        except RuntimeError:  # closed just now
            return
        if response.wait(self._blocked_seconds) or self._stopped.is_set():
            return
        runs = self._runs()
        if not runs:
            return  # no run is affected
        blocker = self._describe_blocker(runs)
        logger.warning(
            "the event loop has been blocked for %.2g s: %s. Everything else waits. Put blocking code in "
            "synchronous junctions, which run in a thread.\n%s",
            time.monotonic() - began,
            blocker,
            self._stack(),
            extra={"duration_seconds": time.monotonic() - began},
        )
        while not response.wait(self._blocked_seconds):
            if self._loop.is_closed():
                return
        seconds = time.monotonic() - began
        extra = {"duration_seconds": seconds}
        logger.warning("the event loop continues after %.2g s: %s", seconds, blocker, extra=extra)

    def _describe_blocker(self, runs: Sequence[ActiveRun[Any]]) -> str:
        task = asyncio.current_task(self._loop)
        for run in runs:
            if task is not None and run.task is task:
                return f"{run} blocks it"
        shown = ", ".join(str(run) for run in runs[:SHOWN_RUNS])
        what = f"task {task.get_name()!r}" if task else "a callback"
        return f"{what} blocks it; active: {shown}"

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:]) if frame else ""
