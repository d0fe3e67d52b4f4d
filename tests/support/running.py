"""Run what is queued, without the manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trax.testing import Harness


async def run_queued(h: Harness) -> int:
    """Let entries through the gate and run them, until nothing is left that may run at this moment."""
    done = 0
    while (await h.cycle("job_dispatcher")).has_changes:
        done += await h.work()
    return done
