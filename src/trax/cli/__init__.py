"""The `trax` command: its subcommands, help and error output.

Each subcommand is imported when it is called, so that `trax --help` is fast.

Run
run.py           `trax run`, `trax scheduler`, `trax worker`
serve.py         run a server: its output, dashboard, messages and warnings
live_view.py     the live view of a server on a terminal
logs.py          logging of a server
dashboard.py     `trax dashboard`
demo/            `trax demo`

Look
status.py        `trax status`, `trax why`, `trax workers`
plan.py          `trax plan`, `trax lint`
simulate.py      `trax simulate`
db.py            `trax db migrate`, `status`, `doctor`
verify.py        `trax verify`

Operate
manifests.py     `trax manifests`
groups.py        `trax groups`
queue.py         `trax queue`
executions.py    `trax executions`, `trax logs`
dead_letters.py  `trax dead-letters`
settings.py      `trax settings`
audit.py         `trax audit`
sessions.py      `trax sessions`, `trax secrets`
imports.py       `trax import`
importing/       read jobs of other schedulers

Shared
options.py       options of the commands that run or load an app
operators.py     options and helpers of the commands that operate
loading.py       load an app from `module:app` or `file.py:app`
output.py        print records, tables and JSON
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path  # noqa: TC003 - the command line parser resolves the types
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from trax.errors import AppImportError, TraxError
from trax.escapes import visible_text

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE_ERROR: Final = 2
BROKEN_PIPE: Final = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""
LONGEST_LINE: Final = 1_000
OBJECTS_BEFORE_COLLECTION: Final = 300_000
"""Imports create many objects and no garbage: with Python's 700, collecting takes a tenth of a command."""
HELP_OF_ALL: Final[tuple[list[str], ...]] = ([], ["--help"], ["-h"])
"""These need no Markdown, whose library takes longer to import than the rest of the help."""


def _version() -> str:
    from importlib.metadata import version

    return version("trax-scheduler")


command = App(
    name="trax",
    help="""Background jobs and schedules that must not be lost.

    Errors are one line; --debug shows the traceback.""",
    version=_version,
    version_flags=["--version"],
    version_format="plaintext",
    default_parameter=Parameter(json_list=False, json_dict=False),
)
command.command(
    "trax.cli.run:run",
    name="run",
    help="""Run an app: its scheduler and a worker, in this process.

    Runs until Ctrl-C or SIGTERM.""",
)
command.command(
    "trax.cli.run:scheduler",
    name="scheduler",
    help="""Enqueue scheduled jobs and dispatch queued ones; run no job.

    Runs until Ctrl-C or SIGTERM. Start `trax worker` to run the jobs, on this machine or another.""",
)
command.command(
    "trax.cli.run:worker",
    name="worker",
    help="""Run queued jobs, in one or more processes.

    Runs until Ctrl-C or SIGTERM. It needs a scheduler (`trax scheduler`), on this machine or another.""",
)
command.command(
    "trax.cli.dashboard:dashboard",
    name="dashboard",
    help="""Serve the dashboard and the HTTP API of a database.

    Runs until Ctrl-C or SIGTERM. It needs only the database, and runs no job.""",
)
command.command(
    "trax.cli.status:why",
    name="why",
    help="""Explain why a manifest or a queued entry is not running.

    The reason that blocks it now comes first.""",
)
command.command(
    "trax.cli.plan:plan",
    name="plan",
    help="""Show what starting an app would change in its database; change nothing.

    Exits with 0 if nothing would change, otherwise with 2.""",
)
command.command(
    "trax.cli.simulate:simulate",
    name="simulate",
    help="""Simulate the manifests of an app: when they run, how late, and what is full.

    Nothing is changed, and no job is run.""",
)
command.command(
    "trax.cli.imports:imports",
    name="import",
    help="Convert jobs of cron, Celery beat or APScheduler into manifests.",
)
command.command(
    "trax.cli.plan:lint",
    name="lint",
    help="""Check an app for mistakes, without a database.

    Exits with 1 if there is a finding.""",
)
command.command("trax.cli.db:db", name="db", help="Migrate and check the database.")
command.command("trax.cli.status:status", name="status", help="Show queue, runs, workers and problems.")
command.command(
    "trax.cli.verify:verify",
    name="verify",
    help="""Check the history: limits, lost and repeated jobs, missed occurrences.

    Exits with 0 if it is clean, with 1 if there is a finding.""",
)
command.command(
    "trax.cli.manifests:manifests", name="manifests", help="List and manage manifests: which train runs when."
)
command.command(
    "trax.cli.groups:groups", name="groups", help="List and change groups: limits and priorities."
)
command.command("trax.cli.queue:queue", name="queue", help="Add, list and cancel queued jobs.")
command.command(
    "trax.cli.executions:executions",
    name="executions",
    help="List, cancel and rerun executions; read their logs.",
)
command.command("trax.cli.executions:logs_of_all", name="logs", help="List log lines of all executions.")
command.command("trax.cli.status:workers", name="workers", help="List the processes that run jobs.")
command.command(
    "trax.cli.dead_letters:dead_letters",
    name="dead-letters",
    help="List, requeue and acknowledge jobs that failed for good.",
)
command.command(
    "trax.cli.settings:settings", name="settings", help="Read and change settings while servers run."
)
command.command(
    "trax.cli.sessions:secrets",
    name="secrets",
    help="Generate and rotate the key that encrypts secret inputs.",
)
command.command("trax.cli.audit:audit", name="audit", help="List operators' changes, and undo them.")
command.command(
    "trax.cli.sessions:sessions",
    name="sessions",
    help="List and end dashboard sessions; create sign-in links.",
)
command.command(
    "trax.cli.demo:demo",
    name="demo",
    help="""Run an example app and show what happened.

    It uses its own database file. It runs until Ctrl-C, and for 20 seconds if the output is a pipe.""",
)


@command.command(name="--install-completion")
def install_completion(
    *,
    shell: Annotated[
        Literal["zsh", "bash", "fish", "powershell"] | None,
        Parameter(help="The shell. Default: the one that runs this command."),
    ] = None,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="The file to write. Default: where the shell looks for it."),
    ] = None,
) -> None:
    """Install completion of commands and options in your shell.

    It writes a script, and a line in the startup file of the shell if needed. Restart the shell afterwards.
    """
    from cyclopts.completion.install import create_install_completion_command  # slow, and rarely needed

    create_install_completion_command(command.install_completion, add_to_startup=True)(
        shell=shell, output=output
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. An expected error is printed as one line; `--debug` raises it.

    The exit code is 1 for an error, and 2 for a wrong command line or an app that cannot be imported. For
    `trax verify` every error is 2, because 1 means that it has found something.
    """
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    try:
        words = [word for word in argv if word != "--debug"]
        if words in HELP_OF_ALL:
            command.help_format = "plaintext"
        code = command(words, print_error=False, exit_on_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        command_line = " ".join(("trax", *(error.command_chain or ())))
        message = str(error).replace("\n", r"\n")  # a word of the command line may have one
        _print_error(f"{message} See `{command_line} --help`.")
        sys.exit(USAGE_ERROR)
    except TraxError as error:
        if debug:
            raise
        _print_error(str(error))
        sys.exit(USAGE_ERROR if isinstance(error, AppImportError) or argv[:1] == ["verify"] else 1)
    except BrokenPipeError:
        # Else Python reports another broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(text: str) -> None:
    """Print to stderr, with long lines cut and control characters made visible."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in text.split("\n")]
    print("trax:", "\n".join(map(visible_text, lines)), file=sys.stderr)  # noqa: T201
