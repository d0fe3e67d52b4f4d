"""Lines that runs log, caught through standard logging, each with the run it belongs to.

Nothing else changes: what other handlers print stays as it was, also where nobody has configured logging.
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
from trax.records.log_line import EXCEPTION_CHARACTERS, LOGGER_CHARACTERS, MESSAGE_CHARACTERS, NewLine
from trax.records.states import LogLevel
from trax.train import current
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from trax.host.live_settings import LiveSettings
    from trax.train import Run

MOST_WAITING: Final = 4096
NEVER_KEPT: Final = ("trax.store", "trax.host.notebook", "sqlalchemy", "psycopg", "alembic")
"""What talks about the database while lines are being written to it."""

LEVELS: Final = {
    LogLevel.CRITICAL: logging.CRITICAL,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.INFORMATION: logging.INFO,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.TRACE: 1,
}


class Caught(NamedTuple):
    """A line as it was logged. `at` is this machine's clock, put right when the line is written."""

    metadata_id: int
    at: float
    level: LogLevel
    logger: str
    message: str
    exception: str | None = None
    stack_trace: str | None = None

    def line(self, now: datetime, here: float) -> NewLine:
        """`now` is the database's clock, and `here` what this machine's shows at the same moment."""
        return NewLine(
            metadata_id=self.metadata_id,
            created_at=now + timedelta(seconds=self.at - here),
            level=self.level,
            logger=self.logger,
            message=self.message,
            exception=self.exception,
            stack_trace=self.stack_trace,
        )


class Capture(logging.Handler):
    """Keeps the lines of an app's runs until they are written.

    It never makes a run wait: when too many lines have to, the oldest are dropped and counted.
    """

    def __init__(self, live: LiveSettings, is_ours: Callable[[Run], bool]) -> None:
        super().__init__()
        self._live = live
        self._is_ours = is_ours
        self._waiting: deque[Caught] = deque()
        self._dropped: Counter[int] = Counter()
        self._guard = Lock()
        self._others: _AsBefore | None = None
        self.is_attached = False

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._waiting or self._dropped)

    def attach(self) -> None:
        """Listen from now on. The root logger is made to pass on what is wanted; the others do not notice."""
        self.is_attached = True
        level = self._live.now.capture_logs
        if level is None:
            return
        root, wanted = logging.getLogger(), LEVELS[LogLevel(level)]
        if root.level > wanted:
            self._others = _AsBefore(root.level, wanted)
            self._others.join(root)
        root.addHandler(self)

    def detach(self) -> None:
        self.is_attached = False
        root = logging.getLogger()
        root.removeHandler(self)
        others, self._others = self._others, None
        heir = next((handler for handler in root.handlers if isinstance(handler, Capture)), None)
        if others and heir:
            heir._others = others  # noqa: SLF001 - another app still listens
        elif others:
            others.leave(root)

    def emit(self, record: logging.LogRecord) -> None:
        if _nobody_else_hears(record):
            logging.lastResort.handle(record)  # pyright: ignore[reportOptionalMemberAccess]
        run = current()
        if run is not None and self._is_wanted(record) and self._is_ours(run):
            caught = _caught(run.metadata_id, record, run.secret_words)
            with self._guard:
                self._keep(caught)

    def take(self) -> list[Caught]:
        """What waits to be written, and, for each run that lost lines, a last one that says how many."""
        with self._guard:
            caught, self._waiting = list(self._waiting), deque()
            dropped, self._dropped = self._dropped, Counter()
        return caught + [_lost(metadata_id, count) for metadata_id, count in dropped.items()]

    def give_back(self, caught: Iterable[Caught]) -> None:
        """These could not be written: they wait again, before those that came after them."""
        with self._guard:
            later, self._waiting = self._waiting, deque()
            for one in (*caught, *later):
                self._keep(one)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        settings = self._live.now
        if settings.capture_logs is None or record.levelno < LEVELS[LogLevel(settings.capture_logs)]:
            return False
        if any(record.name == name or record.name.startswith(f"{name}.") for name in NEVER_KEPT):
            return False
        return not any(fnmatchcase(record.name, pattern) for pattern in settings.capture_logs_except)

    def _keep(self, one: Caught) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._dropped[self._waiting.popleft().metadata_id] += 1
        self._waiting.append(one)


def _caught(metadata_id: int, record: logging.LogRecord, words: frozenset[str]) -> Caught:
    kind, error, trace = record.exc_info or (None, None, None)
    said = "".join(traceback.format_exception_only(kind, error)).strip() if kind else None
    whole = "".join(traceback.format_exception(kind, error, trace)) if kind else record.exc_text
    return Caught(
        metadata_id,
        record.created,
        next(level for level, number in LEVELS.items() if record.levelno >= number or number == 1),
        record.name[:LOGGER_CHARACTERS],
        hide_words(message_of(record), words)[:MESSAGE_CHARACTERS],
        said and hide_words(said, words)[:EXCEPTION_CHARACTERS],
        whole and hide_words(whole, words)[-MESSAGE_CHARACTERS:],  # the end says most
    )


def _lost(metadata_id: int, count: int) -> Caught:
    said = f"{count} lines were dropped: they came faster than they could be written"
    return Caught(metadata_id, time.time(), LogLevel.WARNING, __name__, said)


def _nobody_else_hears(record: logging.LogRecord) -> bool:
    """Whether Python would have written this to stderr itself, had it found no handler at all."""
    if logging.lastResort is None or record.levelno < logging.lastResort.level:
        return False
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(not isinstance(handler, Capture) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


class _AsBefore(logging.Filter):
    """Keeps from the other handlers what they would not have heard before we listened."""

    def __init__(self, before: int, wanted: int) -> None:
        super().__init__()
        self._before = before
        self._wanted = wanted

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._before or _has_its_own_level(record.name)

    def join(self, root: logging.Logger) -> None:
        for handler in root.handlers:
            handler.addFilter(self)
        root.setLevel(self._wanted)

    def leave(self, root: logging.Logger) -> None:
        for handler in root.handlers:
            handler.removeFilter(self)
        if root.level == self._wanted:  # else somebody has set it anew
            root.setLevel(self._before)


def _has_its_own_level(name: str) -> bool:
    logger = logging.getLogger(name)
    while logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False
