"""Where the log lines of a server go: beneath a view on a terminal, else to standard error, line by line."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast

from cyclopts import Parameter

from trax.cli.showing import in_line
from trax.host.log_formats import JsonLines, TextLines

if TYPE_CHECKING:
    from collections.abc import Iterable

KEPT_LINES: Final = 5
FORMATS: Final = {"text": TextLines, "json": JsonLines}

LogFormat = Annotated[
    Literal["text", "json"] | None,
    Parameter(
        env_var="TRAX_LOG_FORMAT",
        help="Log lines to standard error, for people or for programs; else a view if it is a terminal.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    Parameter(env_var="TRAX_LOG_LEVEL", help="From which level on; else info, and warning in the view."),
]


class ShownLine(NamedTuple):
    """A log line as the view shows it."""

    level: int
    text: str


class LastLines(logging.Handler):
    """Keeps the last few lines for whoever draws them. Logging never waits for a terminal."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.setFormatter(TextLines())
        self._kept: deque[ShownLine] = deque(maxlen=KEPT_LINES)
        self._instead: logging.Handler | None = None

    def pass_on(self) -> None:
        """Nobody draws any more: write lines as if there had never been a view."""
        self._instead = lines_to_standard_error("text")

    def emit(self, record: logging.LogRecord) -> None:
        if self._instead is not None:
            self._instead.handle(record)
            return
        try:
            self._kept.append(ShownLine(record.levelno, self._line(record)))
        except Exception:  # noqa: BLE001 - what cannot be shown must not break who logs it
            self.handleError(record)

    @property
    def kept(self) -> Iterable[ShownLine]:
        return tuple(self._kept)

    def _line(self, record: logging.LogRecord) -> str:
        raised = record.exc_info[1] if record.exc_info else None
        why = f" ({type(raised).__name__}: {raised})" if raised else ""
        return in_line(self.format(record).partition("\n")[0] + why)


@dataclass(frozen=True, slots=True)
class Logs:
    """How a server was asked to log."""

    format: str | None = None
    level: str | None = None
    may_draw: bool = True
    """Several processes may share a terminal, and then none of them draws on it."""

    def set_up(self) -> LastLines | None:
        """Log from now on. What the view shall show comes back, if there is to be one."""
        logging.captureWarnings(capture=True)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if self.format is None and self.may_draw and is_drawable():
            return self._beneath()
        self._to_lines()
        return None

    def _to_lines(self) -> None:
        """To standard error. An app that has set up logging itself keeps that, unless a format was named."""
        handler = lines_to_standard_error(self.format or "text")
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=self.format is not None)
        if self.level is not None:
            logging.getLogger().setLevel(self.level.upper())

    def _beneath(self) -> LastLines:
        """What an app's own set-up writes to the terminal passes above the view instead of through it."""
        root = logging.getLogger()
        for handler in cast("list[Any]", root.handlers):
            if getattr(handler, "stream", None) in {sys.stderr, sys.stdout}:
                handler.setStream(_WhateverIsStandardError())
        level: int = logging.getLevelNamesMapping()[(self.level or "warning").upper()]
        lines = LastLines(level)
        root.addHandler(lines)
        root.setLevel(min(level, root.level))
        return lines


def lines_to_standard_error(form: str) -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form]())
    return handler


def is_drawable() -> bool:
    """Whether standard error is a terminal that can be drawn on, whatever wants colours in a pipe."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}


class _WhateverIsStandardError:
    """The view stands in for standard error while it is shown."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
