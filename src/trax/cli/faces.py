"""Output of a server: a live view on a terminal, or log lines."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from trax.cli.view import show_view
from trax.escapes import visible_text

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from trax.cli.log_setup import RecentLines
    from trax.host.app import Trax

logger = logging.getLogger("trax")


class ServerOutput(Protocol):
    """Where a server prints its messages and status."""

    @property
    def terminal(self) -> Console | None:
        """The terminal to draw on; None if only lines can be written."""
        ...

    def say(self, text: str, /) -> None: ...

    def status_view(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        """Show the status of the app during the block."""
        ...


class TerminalOutput:
    """On a terminal: a live view while the app runs, plain lines before and after."""

    def __init__(self, lines: RecentLines) -> None:
        self._lines = lines
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def terminal(self) -> Console:
        return self._console

    def say(self, text: str, /) -> None:
        self._console.print(visible_text(text, keep="\n"), soft_wrap=True)

    def status_view(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        return show_view(app, self._console, heading, self._lines)


class LogOutput:
    """Without a terminal: everything goes to the log."""

    @property
    def terminal(self) -> None:
        return None

    def say(self, text: str, /) -> None:
        logger.info(text)

    def status_view(self, _app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        self.say(heading)
        return nullcontext()
