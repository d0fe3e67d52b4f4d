"""Capture the log lines of runs, format log records as text or JSON lines, and limit repeated lines.

Control characters are escaped (`escapes.py`), so a job can neither forge a line nor control the terminal.
Both formatters are standard library formatters: an app that configures logging itself can use them.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trax.escapes import visible_json, visible_text
from trax.forks import fork_safe
from trax.records.metadata import EXCEPTION_CHARACTERS, LOGGER_CHARACTERS, MESSAGE_CHARACTERS, NewLogLine
from trax.records.states import LogLevel
from trax.train import current
from trax.train.secrets import hide_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from trax.engine.live_settings import LiveSettings
    from trax.train import Run


RECORD_FIELDS: Final = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)
"""Attributes of every record. All others were passed as `extra`."""


MOST_WAITING: Final = 4096

NEVER_CAPTURED: Final = ("trax.store", "trax.worker.run_log", "sqlalchemy", "psycopg", "alembic")
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
        self.waiting: deque[CapturedLine] = deque()
        self.dropped: Counter[int] = Counter()
        self._lock = fork_safe(Lock())
        self._level_filter: _OriginalLevelFilter | None = None
        self.is_attached = False

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
            line = _build_line(run.metadata_id, record, run.secret_words)
            with self._lock:
                self._append(line)

    def take(self) -> list[CapturedLine]:
        """Remove and return the buffered lines; for each run that lost lines, add one that says how many."""
        with self._lock:
            lines, self.waiting = list(self.waiting), deque()
            dropped, self.dropped = self.dropped, Counter()
        return lines + [_drop_notice(metadata_id, count) for metadata_id, count in dropped.items()]

    def put_back(self, lines: Iterable[CapturedLine]) -> None:
        """Put lines that could not be written back at the front of the buffer."""
        with self._lock:
            later, self.waiting = self.waiting, deque()
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
        if len(self.waiting) >= MOST_WAITING:
            self.dropped[self.waiting.popleft().metadata_id] += 1
        self.waiting.append(line)


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


def nearest_logger(name: str) -> logging.Logger:
    """The logger of this name, or the closest one above it.

    Loggers live for ever, so none is created: another process may make up a name for each line.
    """
    root = logging.getLogger()
    while name:
        found = root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return root


def _has_no_other_handler(record: logging.LogRecord) -> bool:
    """Whether, without this handler, Python itself would have written the record to stderr."""
    if logging.lastResort is None or record.levelno < logging.lastResort.level:
        return False
    logger: logging.Logger | None = nearest_logger(record.name)
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
    logger = nearest_logger(name)
    while logger.parent is not None:
        if logger.level:
            return True
        logger = logger.parent
    return False


class TextLines(logging.Formatter):
    """`time level logger: message key=value…`, one line a record; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        extras = "".join(f" {name}={_quote(value)}" for name, value in _extras(record).items())
        line = f"{_format_time(record, ' ')} {record.levelname} {record.name}: {message_of(record)}{extras}"
        trace = "".join(f"\n  {visible_text(below)}" for below in _trace(self, record).split("\n"))
        return visible_text(line) + (trace if trace.strip() else "")


class JsonLines(logging.Formatter):
    """One JSON document a line; `extras` and `exception` only if the record has them."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _format_time(record, "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
        }
        if extras := _extras(record):
            document["extras"] = {name: _json_value(value) for name, value in extras.items()}
        if trace := _trace(self, record):
            document["exception"] = trace
        return visible_json(json.dumps(document, default=str))


def message_of(record: logging.LogRecord) -> str:
    """The formatted message. Wrong arguments must neither lose the line nor fail the run that logged it."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001
        return f"{record.msg} (invalid log arguments)"


def _format_time(record: logging.LogRecord, separator: str) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(separator, timespec="milliseconds").replace("+00:00", "Z")


def _extras(record: logging.LogRecord) -> Mapping[str, Any]:
    """The `extra` fields of the record, after the id and train of the current run."""
    extras = {name: value for name, value in vars(record).items() if name not in RECORD_FIELDS}
    run = current()
    return extras if run is None else {"metadata_id": run.metadata_id, "train": run.train, **extras}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    raised = formatter.formatException(record.exc_info) if record.exc_info else record.exc_text
    stack = record.stack_info and formatter.formatStack(record.stack_info)
    return "\n".join(part for part in (raised, stack) if part)


def _json_value(value: Any) -> Any:
    """The value if it can be encoded as JSON, else its text."""
    try:
        json.dumps(value, default=str, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _quote(value: Any) -> str:
    """The text of the value, quoted if it is empty or contains spaces, quotes or `=`."""
    text = str(value)
    return text if text and not any(one.isspace() or one in '"=' for one in text) else json.dumps(text)


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
