"""Log lines that strangers can cause: one of a kind in so many seconds, however many strangers there are."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY_SECONDS: Final = 30.0
MOST_KINDS: Final = 100


class LogLimit(logging.Filter):
    """Lets one line of a kind through, and says with the next one how many were left out meanwhile.

    The kind of a line is its level and its text before anything is put into it. As a filter of a logger it
    counts for all that the logger says; `log` is for one line. Any thread may use it.
    """

    def __init__(
        self, *, every_seconds: float = EVERY_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._every_seconds = every_seconds
        self._clock = clock
        self._kinds: dict[tuple[int, str], tuple[float, int]] = {}
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        left_out = self._count(record.levelno, str(record.msg))
        if left_out:
            record.msg = f"{str(record.msg).rstrip()} ({left_out} more like this were not logged)"
        return left_out is not None

    def log(self, logger: logging.Logger, level: int, text: str, *words: object) -> None:
        """Log this, unless a line of the same kind was logged a moment ago."""
        left_out = self._count(level, text)
        if left_out is None:
            return
        said = f"{text} ({left_out} more like this were not logged)" if left_out else text
        logger.log(level, said, *words)

    def _count(self, level: int, text: str) -> int | None:
        """How many of this kind were left out since the last line; None: leave this one out, too."""
        now = self._clock()
        with self._lock:
            kind = (level, text)
            if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
                kind = (level, "")
            last, left_out = self._kinds.get(kind, (-self._every_seconds, 0))
            if now - last < self._every_seconds:
                self._kinds[kind] = (last, left_out + 1)
                return None
            self._kinds[kind] = (now, 0)
            return left_out
