"""The `trax` command. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cyclopts import App

from trax.errors import TraxError

if TYPE_CHECKING:
    from collections.abc import Sequence

command = App(
    name="trax", help="Background jobs and schedules that must not be lost.", version_flags=["--version"]
)
command.command("trax.cli.run:run", name="run", help="Run every role in this process.")
command.command(
    "trax.cli.scheduler:scheduler", name="scheduler", help="Fire schedules and open the gate; run no job."
)
command.command("trax.cli.worker:worker", name="worker", help="Run queued jobs, in one or more processes.")
command.command("trax.cli.db:db", name="db", help="The tables and their version.")
command.command("trax.cli.demo:demo", name="demo", help="Run a small train and show its records.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error a person can meet is one clear line, unless `--debug` asks for more."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        code = command([word for word in given if word != "--debug"])
    except TraxError as error:
        if debug:
            raise
        sys.exit(f"trax: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
