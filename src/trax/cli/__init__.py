"""The `trax` command. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from cyclopts import App, CycloptsError

from trax.errors import TraxError
from trax.escapes import visible_text

if TYPE_CHECKING:
    from collections.abc import Sequence

MISUNDERSTOOD: Final = 2
READER_LEFT: Final = 141
"""What a shell says of a program that was ended by SIGPIPE."""
LONGEST_LINE: Final = 1_000


class BrokenApp(TraxError):
    """The module of the app that was named raised an error when it was imported."""


def _version() -> str:
    from importlib.metadata import version

    return version("trax-scheduler")


command = App(
    name="trax",
    help="""Background jobs and schedules that must not be lost.

    What goes wrong is told in one line; with --debug, at length.""",
    version=_version,
    version_flags=["--version"],
)
command.command(
    "trax.cli.run:run",
    name="run",
    help="""Run every role in this process.

    Schedules fire and queued jobs run, until Ctrl-C or SIGTERM.""",
)
command.command(
    "trax.cli.scheduler:scheduler",
    name="scheduler",
    help="""Fire schedules and open the gate; run no job.

    Until Ctrl-C or SIGTERM. The jobs it lets through need a worker, here or elsewhere.""",
)
command.command(
    "trax.cli.worker:worker",
    name="worker",
    help="""Run queued jobs, in one or more processes.

    Until Ctrl-C or SIGTERM. It needs a scheduler, here or elsewhere, that lets jobs through.""",
)
command.command(
    "trax.cli.dashboard:dashboard",
    name="dashboard",
    help="""Serve the dashboard and the API of a database.

    Until Ctrl-C or SIGTERM. It needs only the database; no job runs here.""",
)
command.command(
    "trax.cli.why:why",
    name="why",
    help="""Say why a manifest or a queued entry is not running.

    What holds it now comes first.""",
)
command.command(
    "trax.cli.plan:plan",
    name="plan",
    help="""Show what starting an app would change, and change nothing.

    Exits with 0 if nothing would change, else with 2.""",
)
command.command(
    "trax.cli.imports:imports",
    name="import",
    help="Show what cron, Celery beat or APScheduler runs as manifests.",
)
command.command(
    "trax.cli.lint:lint",
    name="lint",
    help="""Check an app without a database.

    Exits with 1 if there is anything to look at.""",
)
command.command("trax.cli.db:db", name="db", help="The tables and their version.")
command.command(
    "trax.cli.status:status", name="status", help="What waits, what runs, who is there, what is wrong."
)
command.command("trax.cli.manifests:manifests", name="manifests", help="Which train runs when.")
command.command("trax.cli.groups:groups", name="groups", help="Who shares a limit and a priority.")
command.command("trax.cli.queue:queue", name="queue", help="What waits at the gate.")
command.command(
    "trax.cli.executions:executions", name="executions", help="What ran, what runs, how it ended."
)
command.command(
    "trax.cli.dead_letters:dead_letters", name="dead-letters", help="What gave up and waits for a person."
)
command.command(
    "trax.cli.settings:settings", name="settings", help="What operators may change while servers run."
)
command.command(
    "trax.cli.secrets:secrets", name="secrets", help="The key that secrets in inputs are encrypted with."
)
command.command("trax.cli.audit:audit", name="audit", help="What operators did, and undoing it.")
command.command(
    "trax.cli.sessions:sessions", name="sessions", help="Who is signed in to the dashboard; links to sign in."
)
command.command(
    "trax.cli.demo:demo",
    name="demo",
    help="""Run a small company's jobs and show what happened.

    On a database file of its own, until Ctrl-C; in a pipe for 20 seconds.""",
)
command.register_install_completion_command()  # pyright: ignore[reportUnknownMemberType]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; an error a person can meet is one clear line, unless `--debug` asks for more.

    The exit code is 1 for what went wrong, and 2 for a command that was not understood or an app that cannot
    be imported.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        words = [word for word in given if word != "--debug"]
        code = command(words, print_error=False, exit_on_error=False)
        sys.stdout.flush()
    except CycloptsError as misunderstood:
        asked = " ".join(("trax", *(misunderstood.command_chain or ())))
        _complain(f"{misunderstood} See `{asked} --help`.")
        sys.exit(MISUNDERSTOOD)
    except TraxError as error:
        if debug:
            raise
        _complain(str(error))
        sys.exit(MISUNDERSTOOD if isinstance(error, BrokenApp) else 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        sys.exit(READER_LEFT)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    """One line, or more where more is wrong. A value may be long, and hold what steers a terminal."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in text.split("\n")]
    print("trax:", "\n".join(map(visible_text, lines)), file=sys.stderr)  # noqa: T201
