"""The live terminal view of a server, drawn about once a second in its own thread.

The server never waits for it: a stopped terminal, a slow database or an error here affects only the view.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from rich.live import Live

from trax.cli.picture import render
from trax.errors import StoreError
from trax.store import glance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rich.console import Console

    from trax.cli.log_setup import RecentLines
    from trax.host.app import Trax
    from trax.records.glance import LiveView
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 5.0
REST_FACTOR: Final = 50
"""The pause between two reads, as a multiple of the time a read takes."""
CLOSE_SECONDS: Final = 2.0
"""How long closing waits for the last redraw; a terminal stopped with Ctrl-S never draws it."""


class TerminalView:
    """Redraws until it is closed. `read` is called in the view's thread, once per redraw."""

    def __init__(
        self, console: Console, heading: str, read: Callable[[], LiveView], lines: RecentLines
    ) -> None:
        self._console = console
        self._heading = heading
        self._read = read
        self._lines = lines
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trax view", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Redraw once more and restore the terminal."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            self._draw()
        except Exception:
            self._lines.switch_to_stderr()
            logger.exception("terminal view failed and is off; the server continues")

    def _draw(self) -> None:
        """Output of jobs appears above the view, unless it is redirected to a file."""
        is_terminal = sys.stdout.isatty()
        with Live(console=self._console, auto_refresh=False, redirect_stdout=is_terminal) as live:
            is_last = False
            while not is_last:
                is_last, began = self._closing.is_set(), time.monotonic()
                live.update(render(self._heading, self._read_or_error(), self._lines.recent), refresh=True)
                self._closing.wait(pause_after(time.monotonic() - began))

    def _read_or_error(self) -> LiveView | str:
        try:
            return self._read()
        except StoreError as error:
            return f"database does not respond: {error}"


def pause_after(read_seconds: float) -> float:
    """About a second, longer after a slow read: the view must not load the database."""
    return min(max(REFRESH_SECONDS, read_seconds * REST_FACTOR), LONGEST_SECONDS)


@asynccontextmanager
async def show_view(app: Trax, console: Console, heading: str, lines: RecentLines) -> AsyncGenerator[None]:
    """Show the live view of the app during the block."""
    store = await app.parts.store.open()
    view = TerminalView(console, heading, lambda: read_live_view(app, store), lines)
    view.start()
    try:
        yield
    finally:
        await asyncio.to_thread(view.close)


def read_live_view(app: Trax, store: Store) -> LiveView:
    """Read the numbers of the live view, in one short transaction."""
    return store.read(_read_live_view, app, store)


def _read_live_view(connection: Connection, app: Trax, store: Store) -> LiveView:
    return glance.read_live_view(
        connection,
        sorted(app.trains.names_and_aliases),
        now=store.now(connection),
        lost_after=app.parts.settings.worker_lost_after,
    )
