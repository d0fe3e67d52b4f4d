"""`trax demo`: run an example app on SQLite and report what happened.

company.py  the example app: trains and schedules, as a user would write them
watch.py    load the records of this demo run; status lines, if there is no terminal
report.py   the numbers and the text printed before and after
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, Token, validators

from trax.bounds import LONGEST_SECONDS
from trax.cli.operators import parse_delay
from trax.cli.options import LOOPBACK, PORT_RANGE, InsecureLocal
from trax.clock import format_duration, utc_now
from trax.errors import TraxError, count_noun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from trax.cli.demo.company import Company
    from trax.cli.demo.report import Records
    from trax.cli.serve import ServerOutput
    from trax.web.serve import WebListener

NAME_WIDTH: Final = 18
PIPE_WIDTH: Final = 110
PIPE_SECONDS: Final = 20.0
"""How long it runs in a pipe: long enough for everything it announces to happen once."""


def _parse_seconds(kind: object, tokens: Sequence[Token]) -> float:
    return parse_delay(kind, tokens).total_seconds()


Folder = Annotated[Path, Parameter(help="The folder for the demo's database.")]
Seconds = Annotated[
    float | None,
    Parameter(
        help="How long it runs, such as 90s or 5min; default: until Ctrl-C, or 20 s in a pipe.",
        converter=_parse_seconds,
        validator=validators.Number(gt=0, lte=LONGEST_SECONDS),
    ),
]

DashboardPort = Annotated[
    int | None,
    Parameter(
        help="Also serve the dashboard on this port; 0 picks a free one.",
        validator=PORT_RANGE,
    ),
]


def demo(
    *,
    folder: Folder = Path("trax-demo"),
    seconds: Seconds = None,
    port: DashboardPort = None,
    insecure_local: InsecureLocal = False,
) -> None:
    """Run an example app, the jobs of a small company, and show what happened."""
    from trax.cli.demo.watch import LineOutput
    from trax.cli.logs import LogOptions
    from trax.cli.serve import TerminalOutput, open_web_listener

    by = "trax demo --port"
    web = None if port is None else open_web_listener(port, LOOPBACK, by=by, insecure_local=insecure_local)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraxError(
            f"folder {str(folder)!r} cannot be created: {error.strerror}; choose another with --folder"
        ) from None
    is_terminal = sys.stdout.isatty()
    lines = (LogOptions(level="warning") if is_terminal else LogOptions("text", "error")).set_up()
    output = LineOutput() if lines is None else TerminalOutput(lines)
    length = seconds if is_terminal or seconds else PIPE_SECONDS
    asyncio.run(_demonstrate(folder, output, length, web))


async def _demonstrate(
    folder: Path, output: ServerOutput, seconds: float | None, web: WebListener | None
) -> None:
    from trax.cli.demo.company import build_company
    from trax.cli.demo.report import introduction
    from trax.cli.demo.watch import database_now, load_records
    from trax.cli.serve import ServerCommand
    from trax.server.roles import ProcessRole

    file = folder / "trax.db"
    made = build_company(f"sqlite:///{file}", folder, at=utc_now())
    console = _console()
    length = "until Ctrl-C" if seconds is None else f"for {format_duration(seconds)}"
    console.print(f"The jobs of a small coffee company, {length}; an hour is shortened to a second.\n")
    _print_pairs(console, introduction(made))
    console.print()
    since = await database_now(made.app)
    await made.queue_price_job()
    with ServerCommand(made.app, ProcessRole.ALL, output, web=web, seconds=seconds) as command:
        await made.app.serve(observer=command)
    try:
        found = await load_records(made.app, since=since)
    finally:
        made.app.close()
    _conclude(console, made, found, file)


def _conclude(console: Console, made: Company, found: Records, file: Path) -> None:
    from trax.cli.demo.report import dead_letter_steps, summary, table

    length = format_duration(found.until - found.since, units=2)
    console.print(f"\nResults of {length}; waited and took are medians:\n")
    console.print(table(found))
    console.print()
    for sentence in summary(found, made):
        console.print(sentence, soft_wrap=True)
    for latest in found.letters[:1]:
        console.print(f"\n{count_noun(len(found.letters), 'dead letter')} to resolve. The latest:\n")
        _print_pairs(console, dead_letter_steps(latest, made, f"sqlite:///{file}"))
    console.print(f"\nAll records are in {file}. The next run adds to them.", soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)


def _print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print without wrapping, so that commands can be copied."""
    for name, value in pairs:
        console.print(f"  {name:{NAME_WIDTH}}{value}", soft_wrap=True)
