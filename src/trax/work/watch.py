"""Noticing that the event loop stands still, and whose code holds it: nothing else would say so.

While one run blocks the loop, every other one waits, and so do the heartbeat and the clock of the timeouts.
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

    from trax.work.running import Running

logger = logging.getLogger(__name__)

BLOCKED_SECONDS = 1.0
LOOKS = 4
"""How often the loop is asked for a sign of life within the time it may take."""

SHOWN_RUNS = 10
SHOWN_FRAMES = 12


class LoopWatch:
    """A thread that asks the loop for a sign of life, as long as something runs there."""

    def __init__(
        self, runs: Callable[[], Sequence[Running[Any]]], *, blocked_seconds: float = BLOCKED_SECONDS
    ) -> None:
        self._runs = runs
        self._blocked_seconds = blocked_seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_awake(self) -> bool:
        return self._wanted.is_set()

    def wake(self) -> None:
        """Something runs: watch until nothing does any more. Cheap when the watch is awake."""
        if self._wanted.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="trax loop watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._wanted.wait()
            self._ask_for_a_sign()
            self._stopped.wait(self._blocked_seconds / LOOKS)
            if not self._runs():
                self._wanted.clear()
                if self._runs():  # one began in between, and found the watch awake
                    self._wanted.set()

    def _ask_for_a_sign(self) -> None:
        asked_at, sign = time.monotonic(), threading.Event()
        if self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(sign.set)
        except RuntimeError:  # closed just now
            return
        if sign.wait(self._blocked_seconds) or self._stopped.is_set():
            return
        runs = self._runs()
        if not runs:
            return  # nobody of ours is held up
        blamed = self._blamed(runs)
        logger.warning(
            "the event loop has stood still for %.2g s: %s. Everything else waits. Let synchronous junctions "
            "do what blocks, they get a thread.\n%s",
            time.monotonic() - asked_at,
            blamed,
            self._stack(),
            extra={"duration_seconds": time.monotonic() - asked_at},
        )
        while not sign.wait(self._blocked_seconds):
            if self._loop.is_closed():
                return
        seconds = time.monotonic() - asked_at
        extra = {"duration_seconds": seconds}
        logger.warning("the event loop goes on after %.2g s: %s", seconds, blamed, extra=extra)

    def _blamed(self, runs: Sequence[Running[Any]]) -> str:
        task = asyncio.current_task(self._loop)
        for run in runs:
            if task is not None and run.task is task:
                return f"{run} blocks it"
        shown = ", ".join(str(run) for run in runs[:SHOWN_RUNS])
        what = f"task {task.get_name()!r}" if task else "a callback"
        return f"{what} blocks it, while there run {shown}"

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return "".join(traceback.format_stack(frame)[-SHOWN_FRAMES:]) if frame else ""
