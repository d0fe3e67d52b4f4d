"""`trax demo`: a small company at work on the embedded default, and what its records say came of it.

company.py   its trains and schedules: what a user would write
telling.py   how things stand, line by line, where nothing can be drawn
reading.py   the records of this visit
report.py    what they add up to
story.py     what is told before and after
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators
from rich.console import Console

from trax.bounds import LONGEST_SECONDS
from trax.cli.demo.company import company
from trax.cli.demo.reading import moment, records
from trax.cli.demo.story import epilogue, letter, prologue, table
from trax.cli.demo.telling import Told
from trax.cli.doorway import A_PORT, LOOPBACK, InsecureLocal, opened
from trax.cli.faces import Drawn
from trax.cli.log_setup import Logs
from trax.cli.moments import span
from trax.cli.serving import Server, counted
from trax.clock import utc_now
from trax.errors import TraxError
from trax.host.roles import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.cli.demo.company import Company
    from trax.cli.demo.report import Records
    from trax.cli.faces import Face
    from trax.web.serving import Doorway

NAME_WIDTH: Final = 18
PIPE_WIDTH: Final = 110
PIPE_SECONDS: Final = 20.0
"""Nobody presses Ctrl-C in a pipe. So long takes everything that is promised to happen at least once."""

Folder = Annotated[Path, Parameter(help="Where the demo keeps its database.")]
Seconds = Annotated[
    float | None,
    Parameter(
        help="How long it runs; else until Ctrl-C, and in a pipe 20 seconds.",
        validator=validators.Number(gt=0, lte=LONGEST_SECONDS),
    ),
]

DashboardPort = Annotated[
    int | None,
    Parameter(
        help="Serve the dashboard on this port meanwhile; 0 finds a free one.",
        validator=A_PORT,
    ),
]


def demo(
    *,
    folder: Folder = Path("trax-demo"),
    seconds: Seconds = None,
    port: DashboardPort = None,
    insecure_local: InsecureLocal = False,
) -> None:
    """Run a small company's jobs on the embedded default, and show what happened."""
    by = "trax demo --port"
    doorway = None if port is None else opened(port, LOOPBACK, by=by, insecure_local=insecure_local)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraxError(
            f"the folder {str(folder)!r} cannot be made: {error.strerror}; name another"
        ) from None
    is_seen = sys.stdout.isatty()
    lines = (Logs(level="warning") if is_seen else Logs("text", "error")).set_up()
    face = Told() if lines is None else Drawn(lines)
    length = seconds if is_seen or seconds else PIPE_SECONDS
    asyncio.run(_demonstrate(folder, face, length, doorway))


async def _demonstrate(folder: Path, face: Face, seconds: float | None, doorway: Doorway | None) -> None:
    file = folder / "trax.db"
    made = company(f"sqlite:///{file}", folder, at=utc_now())
    console = _console()
    length = "until Ctrl-C" if seconds is None else f"for {seconds:g} s"
    console.print(f"A small coffee company at work {length}; its hours are seconds here.\n")
    _print_pairs(console, prologue(made))
    console.print()
    since = await moment(made.app)
    await made.ask_for_prices()
    await Server(made.app, Role.ALL, face, doorway=doorway).run(seconds=seconds)
    try:
        found = await records(made.app, since=since)
    finally:
        made.app.close()
    _conclude(console, made, found, file)


def _conclude(console: Console, made: Company, found: Records, file: Path) -> None:
    console.print(f"\nWhat happened in {span(found.until - found.since)}; waited and took are medians:\n")
    console.print(table(found))
    console.print()
    for sentence in epilogue(found, made):
        console.print(sentence, soft_wrap=True)
    for one in found.letters[:1]:
        console.print(f"\n{counted(len(found.letters), 'dead letter')}, left for a person. The latest:\n")
        _print_pairs(console, letter(one, made, f"sqlite:///{file}"))
    console.print(f"\nAll records are in {file}. Run it again: they only grow.", soft_wrap=True)


def _console() -> Console:
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def _print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Never broken into lines of our own: what is typed again must stay in one piece."""
    for name, value in pairs:
        console.print(f"  {name:{NAME_WIDTH}}{value}", soft_wrap=True)
