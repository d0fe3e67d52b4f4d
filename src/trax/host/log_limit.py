"""Limit repeated log lines that requests from outside can cause: one of a kind every 30 s."""

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
    """Logs one line of a kind per interval; the next one says how many were suppressed.

    The kind of a line is its level and its unformatted text. As a logging filter it applies to all lines of
    a logger; `log` applies it to one line. Thread-safe.
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

    def log(self, logger: logging.Logger, level: int, text: str, *arguments: object) -> None:
        """Log this, unless a line of the same kind was logged within the interval."""
        left_out = self._count(level, text)
        if left_out is None:
            return
        template = f"{text} ({left_out} more like this were not logged)" if left_out else text
        logger.log(level, template, *arguments)

    def _count(self, level: int, text: str) -> int | None:
        """How many of this kind were suppressed since the last line; None: suppress this one too."""
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
