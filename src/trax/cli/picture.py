"""Render the live terminal view of a server. No I/O."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trax.cli.moments import relative
from trax.cli.showing import single_line
from trax.records.status import COUNT_LIMIT, problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from trax.cli.log_setup import ViewLine
    from trax.records.glance import LiveView, RunningTrain
    from trax.records.status import Status

QUIET: Final = "bright_black"
GOOD: Final = "green"
DOUBTFUL: Final = "yellow"
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
        what = f"run {failure.metadata_id} of {failure.train}, {relative(failure.at, status.now)}"
        yield (
            "last failure",
            Text(single_line(f"{what}: {failure.reason}"), no_wrap=True, overflow="ellipsis"),
        )
    for problem in problems(status):
        yield "problem", Text(single_line(problem), style=BAD)


def _active_runs(live_view: LiveView) -> Text:
    status = live_view.status
    if not status.workers:
        return Text("no live worker yet", style=DOUBTFUL)
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
            f"{single_line(due.manifest)} {relative(due.at, live_view.status.now)}"
            for due in live_view.next_due
        )
    )


def _dead_letters(status: Status) -> Text:
    if not status.dead_letters:
        return Text("none", style=QUIET)
    return Text(f"{_format_count(status.dead_letters)} waiting; see `trax dead-letters list`", style=DOUBTFUL)


def _format_count(number: int) -> str:
    return f"{number}+" if number >= COUNT_LIMIT else str(number)


def _style(level: int) -> str:
    return BAD if level >= logging.ERROR else DOUBTFUL if level >= logging.WARNING else QUIET
