"""The live terminal view of a server: read the numbers, render them, redraw."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trax.cli.output import single_line
from trax.clock import format_distance
from trax.errors import StoreError
from trax.records.listing import COUNT_LIMIT
from trax.records.status import problems
from trax.store import status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from rich.console import Console, RenderableType

    from trax.app.app import Trax
    from trax.cli.logs import RecentLines, ViewLine
    from trax.records.stats import LiveView, RunningTrain
    from trax.records.status import Status
    from trax.store import Connection, Store

logger = logging.getLogger(__name__)
QUIET: Final = "bright_black"
GOOD: Final = "green"
WARN: Final = "yellow"
BAD: Final = "red"


def render(heading: str, live_view: LiveView | str, lines: Iterable[ViewLine]) -> RenderableType:
    """The heading, the live numbers (or why they cannot be read), and the last log lines."""
    rows = [("", Text(single_line(live_view), style=BAD))] if isinstance(live_view, str) else _rows(live_view)
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    log = [Text(line.text, style=_style(line.level)) for line in lines]
    return Group(Text(heading, style="bold"), "", table, *(["", *log] if log else []))


def _rows(live_view: LiveView) -> Iterator[tuple[str, Text]]:
    status = live_view.status
    yield "queue", Text(f"{_format_count(status.ready)} ready, {_format_count(status.delayed)} delayed")
    yield "running", _active_runs(live_view)
    yield "last minute", _last_minute(live_view)
    yield "next", _next(live_view)
    yield "dead letters", _dead_letters(status)
    if live_view.last_failure is not None:
        failure = live_view.last_failure
        what = f"run {failure.metadata_id} of {failure.train}, {format_distance(failure.at, status.now)}"
        yield (
            "last failure",
            Text(single_line(f"{what}: {failure.reason}"), no_wrap=True, overflow="ellipsis"),
        )
    for problem in problems(status):
        yield "problem", Text(single_line(problem), style=BAD)


def _active_runs(live_view: LiveView) -> Text:
    status = live_view.status
    if not status.workers:
        return Text("no live worker yet", style=WARN)
    slots = sum(worker.concurrency for worker in status.workers)
    where = f" on {len(status.workers)} workers" if len(status.workers) > 1 else ""
    text = Text(f"{_format_count(status.running)} of {slots} slots{where}")
    if status.pending:
        text.append(f", {_format_count(status.pending)} waiting for a slot")
    if live_view.running:
        text.append(f": {', '.join(map(_train, live_view.running))}", style=GOOD)
    return text


def _train(running: RunningTrain) -> str:
    times = f" ×{running.count}" if running.count > 1 else ""  # noqa: RUF001 - a count
    progress = "" if running.progress is None else f" {running.progress:.0%}"
    return f"{single_line(running.train)}{times}{progress}"


def _last_minute(live_view: LiveView) -> Text:
    text = Text(f"{_format_count(live_view.completed)} completed, ")
    return text.append(f"{_format_count(live_view.failed)} failed", style=BAD if live_view.failed else "")


def _next(live_view: LiveView) -> Text:
    if not live_view.next_due:
        return Text("no manifest is due", style=QUIET)
    return Text(
        ", ".join(
            f"{single_line(due.manifest)} {format_distance(due.at, live_view.status.now)}"
            for due in live_view.next_due
        )
    )


def _dead_letters(status: Status) -> Text:
    if not status.dead_letters:
        return Text("none", style=QUIET)
    return Text(f"{_format_count(status.dead_letters)} waiting; see `trax dead-letters list`", style=WARN)


def _format_count(number: int) -> str:
    return f"{number}+" if number >= COUNT_LIMIT else str(number)


def _style(level: int) -> str:
    return BAD if level >= logging.ERROR else WARN if level >= logging.WARNING else QUIET


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
            logger.exception("live view: failed and is off; the server continues")

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
    store = await app.context.store.open()
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
    return status.read_live_view(
        connection,
        sorted(app.trains.names_and_aliases),
        now=store.now(connection),
        lost_after=app.context.settings.worker_lost_after,
    )
