"""Set up logging of a server: lines below the live view on a terminal, otherwise to stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from trax.cli.output import single_line
from trax.worker.capture import JsonLines, TextLines

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_LINES: Final = 5
FORMATS: Final = {"text": TextLines, "json": JsonLines}


class ViewLine(NamedTuple):
    """A log line as the view shows it."""

    level: int
    text: str


class RecentLines(logging.Handler):
    """Keeps the last few lines for the view. Logging never waits for the terminal."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.setFormatter(TextLines())
        self._kept: deque[ViewLine] = deque(maxlen=KEPT_LINES)
        self._instead: logging.Handler | None = None

    def switch_to_stderr(self) -> None:
        """The view is gone: write lines to stderr from now on."""
        self._instead = stderr_handler("text")

    def emit(self, record: logging.LogRecord) -> None:
        if self._instead is not None:
            self._instead.handle(record)
            return
        try:
            self._kept.append(ViewLine(record.levelno, self._line(record)))
        except Exception:  # noqa: BLE001 - a line that cannot be formatted must not break its caller
            self.handleError(record)

    @property
    def recent(self) -> Iterable[ViewLine]:
        return tuple(self._kept)

    def _line(self, record: logging.LogRecord) -> str:
        raised = record.exc_info[1] if record.exc_info else None
        why = f" ({type(raised).__name__}: {raised})" if raised else ""
        return single_line(self.format(record).partition("\n")[0] + why)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Log options of a server command."""

    format: str | None = None
    level: str | None = None
    may_draw: bool = True
    """False if several processes share the terminal: then none of them draws on it."""

    def set_up(self) -> RecentLines | None:
        """Set up logging. Returns the lines for the view, or None without a view."""
        logging.captureWarnings(capture=True)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if self.format is None and self.may_draw and is_drawable():
            return self._to_view()
        self._to_stderr()
        return None

    def _to_stderr(self) -> None:
        """Log to stderr. An app's own logging setup stays, unless a format was given."""
        handler = stderr_handler(self.format or "text")
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=self.format is not None)
        if self.level is not None:
            logging.getLogger().setLevel(self.level.upper())

    def _to_view(self) -> RecentLines:
        """Log to the view. Lines of the app's own handlers appear above it."""
        root = logging.getLogger()
        for handler in cast("list[Any]", root.handlers):
            if getattr(handler, "stream", None) in {sys.stderr, sys.stdout}:
                handler.setStream(_CurrentStderr())
        level: int = logging.getLevelNamesMapping()[(self.level or "warning").upper()]
        lines = RecentLines(level)
        root.addHandler(lines)
        root.setLevel(min(level, root.level))
        return lines


def stderr_handler(format_name: str) -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[format_name]())
    return handler


def is_drawable() -> bool:
    """Whether stderr is a terminal that supports drawing; variables that force colours do not count."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


class _CurrentStderr:
    """Writes to the current `sys.stderr`, which the view replaces while it is shown."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
