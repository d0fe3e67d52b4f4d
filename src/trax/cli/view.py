"""A calm view of a server at work, drawn about once a second by a thread of its own.

Nothing waits for it: a terminal that is held up, a database that does not answer or an error in here cost the
view, and never the server.
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

from trax.cli.picture import picture
from trax.errors import StoreError
from trax.store import glance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from rich.console import Console

    from trax.cli.log_setup import LastLines
    from trax.host.app import Trax
    from trax.records.glance import Glance
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 5.0
SPARING: Final = 50
"""How much longer the view rests than it looks."""
FAREWELL_SECONDS: Final = 2.0
"""How long the end waits for the last picture. A terminal that was stopped with Ctrl-S takes none."""


class View:
    """Draws until it is closed. `read` is asked in the view's own thread, once for each picture."""

    def __init__(self, console: Console, heading: str, read: Callable[[], Glance], lines: LastLines) -> None:
        self._console = console
        self._heading = heading
        self._read = read
        self._lines = lines
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trax view", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Draw once more and leave the terminal as it was."""
        self._closing.set()
        self._thread.join(FAREWELL_SECONDS)

    def _run(self) -> None:
        try:
            self._draw()
        except Exception:
            self._lines.pass_on()
            logger.exception("the view failed and is gone; the server goes on")

    def _draw(self) -> None:
        """What jobs print appears above, and stays out of the way when it goes to a file."""
        is_seen = sys.stdout.isatty()
        with Live(console=self._console, auto_refresh=False, redirect_stdout=is_seen) as live:
            is_last = False
            while not is_last:
                is_last, began = self._closing.is_set(), time.monotonic()
                live.update(picture(self._heading, self._seen(), self._lines.kept), refresh=True)
                self._closing.wait(pause_after(time.monotonic() - began))

    def _seen(self) -> Glance | str:
        try:
            return self._read()
        except StoreError as error:
            return f"the database does not answer: {error}"


def pause_after(took: float) -> float:
    """About a second, and longer where a look is dear: watching must not be what keeps a database busy."""
    return min(max(REFRESH_SECONDS, took * SPARING), LONGEST_SECONDS)


@asynccontextmanager
async def viewed(app: Trax, console: Console, heading: str, lines: LastLines) -> AsyncGenerator[None]:
    """Show the app at work for as long as the block lasts."""
    store = await app.parts.store.opened()
    view = View(console, heading, lambda: look(app, store), lines)
    view.start()
    try:
        yield
    finally:
        await asyncio.to_thread(view.close)


def look(app: Trax, store: Store) -> Glance:
    """One short transaction."""
    return store.read(_look, app, store)


def _look(connection: Connection, app: Trax, store: Store) -> Glance:
    return glance.read(
        connection,
        sorted(app.trains.names_and_aliases),
        now=store.now(connection),
        lost_after=app.parts.settings.worker_lost_after,
    )
