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
lists.py         the command `list` of a noun
loading.py       load an app from `module:app` or `file.py:app`
output.py        print records, tables and JSON
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.errors import AppImportError, TraxError
from trax.escapes import visible_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cyclopts import App

USAGE_ERROR: Final = 2
BROKEN_PIPE: Final = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""
LONGEST_LINE: Final = 1_000
OBJECTS_BEFORE_COLLECTION: Final = 300_000
"""Imports create many objects and no garbage: with Python's 700, collecting takes a tenth of a command."""
SUMMARY: Final = "Background jobs and schedules that must not be lost."
ERRORS: Final = "Errors are one line; --debug shows the traceback."


LONGEST_COMMAND: Final = len("dead-letters")


class Subcommand(NamedTuple):
    target: str
    """The module in this package, and the function or the group of commands in it."""
    summary: str
    details: str = ""


COMMANDS: Final[Mapping[str, Mapping[str, Subcommand]]] = {
    "Run": {
        "run": Subcommand(
            "run:run",
            "Run an app: its scheduler and a worker, in this process.",
            "Runs until Ctrl-C or SIGTERM.",
        ),
        "scheduler": Subcommand(
            "run:scheduler",
            "Enqueue scheduled jobs and dispatch queued ones; run no job.",
            "Runs until Ctrl-C or SIGTERM. Start `trax worker` to run the jobs, on this machine or another.",
        ),
        "worker": Subcommand(
            "run:worker",
            "Run queued jobs, in one or more processes.",
            "Runs until Ctrl-C or SIGTERM. Needs a scheduler (`trax scheduler`), on this machine or another.",
        ),
        "dashboard": Subcommand(
            "dashboard:dashboard",
            "Serve the dashboard and the HTTP API of a database.",
            "Runs until Ctrl-C or SIGTERM. Needs only the database, and runs no job.",
        ),
        "demo": Subcommand(
            "demo:demo",
            "Run an example app and show what happened.",
            "Uses its own database file. Runs until Ctrl-C, and for 20 seconds if the output is a pipe.",
        ),
    },
    "Look": {
        "status": Subcommand("status:status", "Show queue, runs, workers and problems."),
        "why": Subcommand(
            "status:why",
            "Explain why a manifest or a queued entry is not running.",
            "The reason that blocks it now comes first.",
        ),
        "plan": Subcommand(
            "plan:plan",
            "Show what starting an app would change; change nothing.",
            "Exits with 0 if nothing would change, otherwise with 2.",
        ),
        "simulate": Subcommand(
            "simulate:simulate",
            "Simulate schedules: when they run, how late, what is full.",
            "Nothing is changed, and no job is run.",
        ),
        "lint": Subcommand(
            "plan:lint",
            "Check an app for mistakes, without a database.",
            "Exits with 1 if there is a finding.",
        ),
        "verify": Subcommand(
            "verify:verify",
            "Check the history: limits, lost or repeated jobs, missed runs.",
            "Exits with 0 if it is clean, with 1 if there is a finding.",
        ),
        "workers": Subcommand("status:workers", "List the processes that run jobs."),
        "logs": Subcommand("executions:logs_of_all", "List log lines of all executions."),
    },
    "Operate": {
        "manifests": Subcommand("manifests:manifests", "List and manage manifests: which train runs when."),
        "groups": Subcommand("groups:groups", "List and change groups: limits and priorities."),
        "queue": Subcommand("queue:queue", "Add, list and cancel queued jobs."),
        "executions": Subcommand(
            "executions:executions", "List, cancel and rerun executions; read their logs."
        ),
        "dead-letters": Subcommand(
            "dead_letters:dead_letters", "List, requeue and acknowledge jobs whose last attempt failed."
        ),
        "settings": Subcommand("settings:settings", "Read and change settings while servers run."),
        "audit": Subcommand("audit:audit", "List operators' changes, and undo them."),
        "sessions": Subcommand("sessions:sessions", "List and end dashboard sessions; create sign-in links."),
        "secrets": Subcommand("sessions:secrets", "Generate and rotate the key that encrypts secret inputs."),
    },
    "Set up": {
        "db": Subcommand("db:db", "Migrate and check the database."),
        "import": Subcommand(
            "imports:imports", "Convert jobs of cron, Celery beat or APScheduler into manifests."
        ),
    },
}
OPTIONS: Final[Mapping[str, str]] = {
    "--help, -h": "Show this help, or that of a command.",
    "--version": "Show the version.",
    "--install-completion": "Complete commands and options in your shell.",
}


def show_help() -> None:
    """Print all commands. The parser could do this too, but importing it takes three times as long."""
    lines = ["Usage: trax COMMAND", "", SUMMARY, ERRORS]
    for name, commands in COMMANDS.items():
        lines += _section(name, {word: each.summary for word, each in commands.items()})
    print("\n".join(lines + _section("Options", OPTIONS)))  # noqa: T201


def _section(name: str, texts: Mapping[str, str]) -> list[str]:
    width = max(LONGEST_COMMAND, *map(len, texts))
    return ["", f"{name}:", *(f"  {word:<{width}}  {text}" for word, text in texts.items())]


def read_version() -> str:
    from importlib.metadata import version

    return version("trax-scheduler")


@cache
def build_parser() -> App:
    """The parser of the command line; commands are imported when they are called."""
    from cyclopts import App, Parameter

    parser = App(
        name="trax",
        help=f"{SUMMARY}\n\n{ERRORS}",
        version=read_version,
        version_format="plaintext",
        default_parameter=Parameter(json_list=False, json_dict=False),
    )
    for commands in COMMANDS.values():
        for name, each in commands.items():
            parser.command(f"trax.cli.{each.target}", name=name, help="\n\n".join(filter(None, each[1:])))
    parser.command("trax.cli.options:install_completion", name="--install-completion")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. An expected error is printed as one line; `--debug` raises it.

    The exit code is 1 for an error, and 2 for a wrong command line or an app that cannot be imported. For
    `trax verify` every error is 2, because 1 means that it has found something.
    """
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    try:
        code = _run([word for word in argv if word != "--debug"])
        sys.stdout.flush()
    except TraxError as error:
        if debug:
            raise
        _print_error(_hide_passwords(argv, str(error)))
        sys.exit(USAGE_ERROR if isinstance(error, AppImportError) or argv[:1] == ["verify"] else 1)
    except BrokenPipeError:
        # Else Python reports another broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BROKEN_PIPE)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    if arguments in ([], ["--help"], ["-h"]):
        show_help()
        return 0
    if arguments == ["--version"]:
        print(read_version())  # noqa: T201
        return 0
    from cyclopts import CycloptsError

    try:
        code = build_parser()(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        command_line = " ".join(("trax", *(error.command_chain or ())))
        message = str(error).replace("\n", r"\n")  # a word of the command line may have one
        _print_error(f"{_hide_passwords(arguments, message)} See `{command_line} --help`.")
        return USAGE_ERROR
    return code if isinstance(code, int) else 0


def _hide_passwords(arguments: Sequence[str], text: str) -> str:
    """Mask passwords of the command line, which an error may repeat: a URL may be in the wrong place."""
    from trax.masking import hide_passwords_of, mask_urls

    values = (word.partition("=")[2] for word in arguments if word.startswith("--"))
    return mask_urls(hide_passwords_of((*arguments, *values), text))


def _print_error(text: str) -> None:
    """Print to stderr, with long lines cut and control characters made visible."""
    lines = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in text.split("\n")]
    print("trax:", "\n".join(map(visible_text, lines)), file=sys.stderr)  # noqa: T201
