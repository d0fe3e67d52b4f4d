"""How a server at work looks on a terminal. No I/O: give it what was read, get what is drawn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trax.cli.moments import relative
from trax.cli.showing import in_line
from trax.records.status import COUNTED_TO, problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from trax.cli.log_setup import ShownLine
    from trax.records.glance import Glance, UnderWay
    from trax.records.status import Status

QUIET: Final = "bright_black"
GOOD: Final = "green"
DOUBTFUL: Final = "yellow"
BAD: Final = "red"


def picture(heading: str, seen: Glance | str, lines: Iterable[ShownLine]) -> RenderableType:
    """The heading, how things stand (or why that is not known), and the last log lines beneath."""
    rows = [("", Text(in_line(seen), style=BAD))] if isinstance(seen, str) else _rows(seen)
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value)
    said = [Text(line.text, style=_style(line.level)) for line in lines]
    return Group(Text(heading, style="bold"), "", table, *(["", *said] if said else []))


def _rows(seen: Glance) -> Iterator[tuple[str, Text]]:
    status = seen.status
    yield "queue", Text(f"{_many(status.ready)} ready, {_many(status.delayed)} delayed")
    yield "running", _running(seen)
    yield "last minute", _ended(seen)
    yield "next", _next(seen)
    yield "dead letters", _dead_letters(status)
    if seen.last_failure is not None:
        failure = seen.last_failure
        what = f"run {failure.metadata_id} of {failure.train}, {relative(failure.at, status.now)}"
        yield "last failure", Text(in_line(f"{what}: {failure.reason}"), no_wrap=True, overflow="ellipsis")
    for problem in problems(status):
        yield "wrong", Text(in_line(problem), style=BAD)


def _running(seen: Glance) -> Text:
    status = seen.status
    if not status.workers:
        return Text("no worker lives yet", style=DOUBTFUL)
    slots = sum(worker.concurrency for worker in status.workers)
    where = f" on {len(status.workers)} workers" if len(status.workers) > 1 else ""
    text = Text(f"{_many(status.running)} of {slots} slots{where}")
    if status.pending:
        text.append(f", {_many(status.pending)} let through and waiting for one")
    if seen.under_way:
        text.append(f": {', '.join(map(_train, seen.under_way))}", style=GOOD)
    return text


def _train(one: UnderWay) -> str:
    times = f" ×{one.count}" if one.count > 1 else ""  # noqa: RUF001 - that many times
    far = "" if one.progress is None else f" {one.progress:.0%}"
    return f"{in_line(one.train)}{times}{far}"


def _ended(seen: Glance) -> Text:
    text = Text(f"{_many(seen.completed)} done, ")
    return text.append(f"{_many(seen.failed)} failed", style=BAD if seen.failed else "")


def _next(seen: Glance) -> Text:
    if not seen.next_due:
        return Text("nothing is due", style=QUIET)
    return Text(
        ", ".join(f"{in_line(one.manifest)} {relative(one.at, seen.status.now)}" for one in seen.next_due)
    )


def _dead_letters(status: Status) -> Text:
    if not status.dead_letters:
        return Text("none", style=QUIET)
    return Text(f"{_many(status.dead_letters)} wait for a person: trax dead-letters list", style=DOUBTFUL)


def _many(number: int) -> str:
    return f"{number}+" if number >= COUNTED_TO else str(number)


def _style(level: int) -> str:
    return BAD if level >= logging.ERROR else DOUBTFUL if level >= logging.WARNING else QUIET
