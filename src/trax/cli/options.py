"""Options of the commands that run or load an app; `trax --install-completion`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - the command line parser resolves the types
from typing import Annotated, Final, Literal

from cyclopts import Parameter, validators

from trax.bounds import MAX_SLOTS

LOOPBACK: Final = "127.0.0.1"
PORT_RANGE: Final = validators.Number(gte=0, lte=65535)

AppName = Annotated[str | None, Parameter(help="module:app or file.py:app; default: $TRAX_APP.")]
Concurrency = Annotated[
    int | None,
    Parameter(
        help="How many jobs run at once; default: from the settings.",
        validator=validators.Number(gte=1, lte=MAX_SLOTS),
    ),
]
Port = Annotated[int, Parameter(help="The port to listen on.", validator=PORT_RANGE)]
WebPort = Annotated[
    int | None,
    Parameter("--web", help="Also serve the dashboard and the HTTP API on this port.", validator=PORT_RANGE),
]
WebHost = Annotated[
    str, Parameter(help="Address to listen on; other than loopback only if access is configured.")
]
InsecureLocal = Annotated[
    bool,
    Parameter(negative=(), help="Treat every local process as an operator, without signing in."),
]
LogFormat = Annotated[
    Literal["text", "json"] | None,
    Parameter(
        env_var="TRAX_LOG_FORMAT",
        help="Write log lines to stderr, for people or programs; default: a live view on a terminal.",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    Parameter(
        env_var="TRAX_LOG_LEVEL", help="Lowest level to log; default: info, and warning in the live view."
    ),
]


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
    from cyclopts.completion.install import create_install_completion_command

    from trax.cli import build_parser

    create_install_completion_command(build_parser().install_completion, add_to_startup=True)(
        shell=shell, output=output
    )
