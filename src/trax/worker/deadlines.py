"""The time limits of active runs: cancel those that exceed theirs, and log those that do not stop."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

from trax.clock import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.worker.active_run import ActiveRun

logger = logging.getLogger(__name__)
STOP_WARNING_SECONDS = 5.0
"""How long a run may take to stop before a warning is logged."""


class Deadlines:
    """Cancels runs that time out, and logs those that do not stop. A run that ends in time costs nothing."""

    def __init__(self, running: Mapping[int, ActiveRun[Any]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock
        self.next_at = math.inf
        """When the next sweep is."""
        self._timer: asyncio.TimerHandle | None = None

    def schedule_sweep(self, moment: float) -> None:
        """Sweep at this moment at the latest."""
        if moment < self.next_at:
            self._set_timer(moment)

    def expect_stop(self, run: ActiveRun[Any]) -> None:
        """Check later whether a cancelled run has stopped."""
        run.check_at = self._clock() + STOP_WARNING_SECONDS
        self.schedule_sweep(run.check_at)

    def sweep(self) -> None:
        """Check every run whose deadline has passed."""
        now = self._clock()
        try:
            for run in list(self._running.values()):
                if run.check_at <= now:
                    run.check_at = math.inf
                    self._check(run)
        finally:
            self._set_timer(min((run.check_at for run in self._running.values()), default=math.inf))

    def close(self) -> None:
        self._set_timer(math.inf)

    def _check(self, run: ActiveRun[Any]) -> None:
        if not run.is_stop_requested:
            run.token.cancel(f"timed out after {format_duration(run.timeout)}", timed_out=True)
            run.check_at = self._clock() + STOP_WARNING_SECONDS
            return
        logger.warning(
            "%s has not stopped (%s); it keeps its slot until it ends. Synchronous code must check "
            "current().cancelled, and no code may swallow CancelledError",
            run,
            run.token.reason,
            extra=run.extra,
        )

    def _set_timer(self, moment: float) -> None:
        self.next_at = moment
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment < math.inf:
            delay = max(0.0, moment - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self.sweep)
