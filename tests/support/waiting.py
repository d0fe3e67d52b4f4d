"""Wait for what another process or thread will bring about; never for a length of time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def until(condition: Callable[[], bool], *, within_seconds: float = 30) -> None:
    """Return as soon as the condition holds; fail when it has not come true in ample time."""
    pause = threading.Event()
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.005)
