"""Wait for what another process or thread will bring about; never for a length of time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def until(condition: Callable[[], bool], *, within_seconds: float = 120) -> None:
    """Return as soon as the condition holds; fail when it has not come true in ample time.

    Who waits pauses longer than it looks: what it waits for may need the processor.
    """
    pause = threading.Event()
    deadline = time.monotonic() + within_seconds
    looked_at = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, "the condition did not come true"
        pause.wait(max(0.005, 2 * (now - looked_at)))
        looked_at = time.monotonic()
