"""Capture the log lines of runs from standard logging, each with its run.

Other handlers print what they printed before, also where logging is not configured.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter, deque
from datetime import timedelta
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.host.log_formats import message_of
from trax.records.log_line import EXCEPTION_CHARACTERS, LOGGER_CHARACTERS, MESSAGE_CHARACTERS, NewLogLine
from trax.records.states import LogLevel
from trax.train import current
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from trax.host.live_settings import LiveSettings
    from trax.train import Run

MOST_WAITING: Final = 4096
NEVER_CAPTURED: Final = ("trax.store", "trax.host.notebook", "sqlalchemy", "psycopg", "alembic")
"""Loggers that log while lines are written to the database: capturing them would never end."""

LEVELS: Final = {
    LogLevel.CRITICAL: logging.CRITICAL,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.INFORMATION: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: 1,
}


class CapturedLine(NamedTuple):
    """A log line of a run. `at` is this machine's clock, converted to database time on writing."""

    metadata_id: int
    at: float
    level: LogLevel
    logger: str
    message: str
    exception: str | None = None
    stack_trace: str | None = None

    def line(self, now: datetime, local_time: float) -> NewLogLine:
        """Convert to database time: `now` is the database's clock, `here` this machine's, read together."""
        return NewLogLine(
            metadata_id=self.metadata_id,
            created_at=now + timedelta(seconds=self.at - local_time),
            level=self.level,
            logger=self.logger,
            message=self.message,
            exception=self.exception,
            stack_trace=self.stack_trace,
        )


class Capture(logging.Handler):
    """Buffers the log lines of an app's runs until they are written.

    It never blocks a run: when the buffer is full, the oldest lines are dropped and counted.
    """

    def __init__(self, live: LiveSettings, is_ours: Callable[[Run], bool]) -> None:
        super().__init__()
        self._live = live
        self._is_ours = is_ours
        self._waiting: deque[CapturedLine] = deque()
        self._dropped: Counter[int] = Counter()
        self._guard = Lock()
        self._level_filter: _OriginalLevelFilter | None = None
        self.is_attached = False

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._waiting or self._dropped)

    def attach(self) -> None:
        """Start capturing. The root level is lowered if needed, without effect on other handlers."""
        self.is_attached = True
        level = self._live.current.capture_logs
        if level is None:
            return
        root, wanted = logging.getLogger(), LEVELS[LogLevel(level)]
        if root.level > wanted:
            self._level_filter = _OriginalLevelFilter(root.level, wanted)
            self._level_filter.install(root)
        root.addHandler(self)

    def detach(self) -> None:
        self.is_attached = False
        root = logging.getLogger()
        root.removeHandler(self)
        others, self._level_filter = self._level_filter, None
        other_capture = next((handler for handler in root.handlers if isinstance(handler, Capture)), None)
        if others and other_capture:
            other_capture._level_filter = others  # noqa: SLF001 - another app still captures
        elif others:
            others.uninstall(root)

    def emit(self, record: logging.LogRecord) -> None:
        if _has_no_other_handler(record):
            logging.lastResort.handle(record)  # pyright: ignore[reportOptionalMemberAccess]
        run = current()
        if run is not None and self._is_wanted(record) and self._is_ours(run):
            caught = _build_line(run.metadata_id, record, run.secret_words)
            with self._guard:
                self._append(caught)

    def take(self) -> list[CapturedLine]:
        """Remove and return the buffered lines; for each run that lost lines, add one that says how many."""
        with self._guard:
            caught, self._waiting = list(self._waiting), deque()
            dropped, self._dropped = self._dropped, Counter()
        return caught + [_drop_notice(metadata_id, count) for metadata_id, count in dropped.items()]

    def put_back(self, lines: Iterable[CapturedLine]) -> None:
        """Put lines that could not be written back at the front of the buffer."""
        with self._guard:
            later, self._waiting = self._waiting, deque()
            for one in (*lines, *later):
                self._append(one)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        settings = self._live.current
        if settings.capture_logs is None or record.levelno < LEVELS[LogLevel(settings.capture_logs)]:
            return False
        if any(record.name == name or record.name.startswith(f"{name}.") for name in NEVER_CAPTURED):
            return False
        return not any(fnmatchcase(record.name, pattern) for pattern in settings.capture_logs_except)

    def _append(self, line: CapturedLine) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._dropped[self._waiting.popleft().metadata_id] += 1
        self._waiting.append(line)


def _build_line(metadata_id: int, record: logging.LogRecord, secret_words: frozenset[str]) -> CapturedLine:
    kind, error, trace = record.exc_info or (None, None, None)
    summary = "".join(traceback.format_exception_only(kind, error)).strip() if kind else None
    full_trace = "".join(traceback.format_exception(kind, error, trace)) if kind else record.exc_text
    return CapturedLine(
        metadata_id,
        record.created,
        next(level for level, number in LEVELS.items() if record.levelno >= number or number == 1),
        record.name[:LOGGER_CHARACTERS],
        hide_words(message_of(record), secret_words)[:MESSAGE_CHARACTERS],
        summary and hide_words(summary, secret_words)[:EXCEPTION_CHARACTERS],
        full_trace and hide_words(full_trace, secret_words)[-MESSAGE_CHARACTERS:],  # the end matters most
    )


def _drop_notice(metadata_id: int, count: int) -> CapturedLine:
    message = f"{count} log lines were dropped: they were logged faster than they could be written"
    return CapturedLine(metadata_id, time.time(), LogLevel.WARNING, __name__, message)


def _has_no_other_handler(record: logging.LogRecord) -> bool:
    """Whether, without this handler, Python itself would have written the record to stderr."""
    if logging.lastResort is None or record.levelno < logging.lastResort.level:
        return False
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(handler, Capture) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


class _OriginalLevelFilter(logging.Filter):
    """Hides from other handlers the records that the original root level would have hidden."""

    def __init__(self, original_level: int, capture_level: int) -> None:
        super().__init__()
        self._original_level = original_level
        self._capture_level = capture_level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._original_level or _has_own_level(record.name)

    def install(self, root: logging.Logger) -> None:
        for handler in root.handlers:
            handler.addFilter(self)
        root.setLevel(self._capture_level)

    def uninstall(self, root: logging.Logger) -> None:
        for handler in root.handlers:
            handler.removeFilter(self)
        if root.level == self._capture_level:  # else other code has changed it since
            root.setLevel(self._original_level)


def _has_own_level(name: str) -> bool:
    logger = logging.getLogger(name)
    while logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False
