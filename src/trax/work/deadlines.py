"""Runs that take too long: one timer for all of them, set to the first moment one must be looked at."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trax.work.running import Running

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long a run that was asked to stop may take before it is spoken of."""


class Deadlines:
    """Cancels what is late, and names what does not listen. A run that ends in time costs nothing here."""

    def __init__(self, running: Mapping[int, Running[Any]], clock: Callable[[], float]) -> None:
        self._running = running
        self._clock = clock
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def note(self, moment: float) -> None:
        """See to it that the sweep comes by then."""
        if moment < self._next:
            self._set(moment)

    def asked_to_stop(self, run: Running[Any]) -> None:
        """Come back to a run whose token says stop, if it has not ended before."""
        run.look_at = self._clock() + PATIENCE_SECONDS
        self.note(run.look_at)

    def sweep(self) -> None:
        """Look at every run whose moment has come."""
        now = self._clock()
        for run in list(self._running.values()):
            if run.look_at <= now:
                self._look(run)
        self._set(min((run.look_at for run in self._running.values()), default=math.inf))

    def close(self) -> None:
        self._set(math.inf)

    def _look(self, run: Running[Any]) -> None:
        if not run.token.requested:
            run.token.cancel(f"timed out after {run.seconds:g} s", timed_out=True)
            run.look_at = self._clock() + PATIENCE_SECONDS
            return
        run.look_at = math.inf  # once is enough
        logger.warning(
            "%s was asked to stop (%s) and still runs; it keeps its slot until it ends. Synchronous code "
            "must look at current().cancelled, and no code may swallow CancelledError",
            run,
            run.token.reason,
            extra=run.extra,
        )

    def _set(self, moment: float) -> None:
        self._next = moment
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if moment < math.inf:
            delay = max(0.0, moment - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self.sweep)
