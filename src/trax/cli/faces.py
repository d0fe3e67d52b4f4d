"""How a server shows itself: drawn on a terminal, or as log lines."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from trax.cli.view import viewed
from trax.escapes import visible_text

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from trax.cli.log_setup import LastLines
    from trax.host.app import Trax

logger = logging.getLogger("trax")


class Face(Protocol):
    """What a server needs to speak to whoever started it."""

    @property
    def terminal(self) -> Console | None:
        """Where something may be drawn; None where only lines can be written."""
        ...

    def say(self, text: str, /) -> None: ...

    def shown(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        """Show the app at work for as long as the block lasts."""
        ...


class Drawn:
    """On a terminal: a view while it runs, and plain sentences before and after."""

    def __init__(self, lines: LastLines) -> None:
        self._lines = lines
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def terminal(self) -> Console:
        return self._console

    def say(self, text: str, /) -> None:
        self._console.print(visible_text(text, keep="\n"), soft_wrap=True)

    def shown(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        return viewed(app, self._console, heading, self._lines)


class Logged:
    """Anywhere else: all it has to say is in the log."""

    @property
    def terminal(self) -> None:
        return None

    def say(self, text: str, /) -> None:
        logger.info(text)

    def shown(self, _app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        self.say(heading)
        return nullcontext()
