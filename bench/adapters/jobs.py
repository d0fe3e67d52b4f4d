"""What the jobs of every contender do: nothing, or report when they started."""

from __future__ import annotations

import time

from bench.children import say

ran: int = 0
"""How many jobs ran in this process."""
starts: list[tuple[float, float]] = []
"""When each job was enqueued and when it started, while `collects`."""
collects: bool = False


def do_nothing(_input: object) -> None:
    global ran  # noqa: PLW0603 - one counter for a whole process, and as cheap as can be
    ran += 1


def tell(asked: float) -> None:
    """Record the start of a job, or report it at once."""
    started = time.monotonic()
    if collects:
        starts.append((asked, started))
    else:
        say(started=started, asked=asked)


def collect() -> None:
    """Record starts from now on instead of reporting them."""
    global collects  # noqa: PLW0603
    collects = True
    starts.clear()
