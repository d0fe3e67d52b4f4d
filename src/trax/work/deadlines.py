"""Time limits of runs: one timer for all, set to the earliest deadline."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.work.running import ActiveRun

logger = logging.getLogger(__name__)

STOP_WARNING_SECONDS = 5.0
"""How long a run may take to stop before a warning is logged."""


class Deadlines:
    """Cancels runs that time out, and logs those that do not stop. A run that ends in time costs nothing."""

    def __init__(self, running: Mapping[int, ActiveRun[Any]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def schedule_sweep(self, moment: float) -> None:
        """Sweep at this moment at the latest."""
        if moment < self._next:
            self._set_timer(moment)

    def expect_stop(self, run: ActiveRun[Any]) -> None:
        """Check later whether a cancelled run has stopped."""
        run.next_check_at = self._clock() + STOP_WARNING_SECONDS
        self.schedule_sweep(run.next_check_at)

    def sweep(self) -> None:
        """Check every run whose deadline has passed."""
        now = self._clock()
        for run in list(self._running.values()):
            if run.next_check_at <= now:
                self._check(run)
        self._set_timer(min((run.next_check_at for run in self._running.values()), default=math.inf))

    def close(self) -> None:
        self._set_timer(math.inf)

    def _check(self, run: ActiveRun[Any]) -> None:
        if not run.token.requested:
            run.token.cancel(f"timed out after {run.seconds:g} s", timed_out=True)
            run.next_check_at = self._clock() + STOP_WARNING_SECONDS
            return
        run.next_check_at = math.inf  # one warning is enough
        logger.warning(
            "%s has not stopped (%s); it keeps its slot until it ends. Synchronous code must check "
            "current().cancelled, and no code may swallow CancelledError",
            run,
            run.token.reason,
            extra=run.extra,
        )

    def _set_timer(self, moment: float) -> None:
        self._next = moment
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment < math.inf:
            delay = max(0.0, moment - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self.sweep)
