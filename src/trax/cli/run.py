"""`trax run`, `trax scheduler` and `trax worker`: run all or some roles of an app."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter, validators

from trax.bounds import MAX_PROCESSES
from trax.cli.options import (
    LOOPBACK,
    AppName,
    Concurrency,
    InsecureLocal,
    LogFormat,
    LogLevel,
    WebHost,
    WebPort,
)

if TYPE_CHECKING:
    from trax.cli.logs import LogOptions

logger = logging.getLogger("trax")


def run(
    app: AppName = None,
    /,
    *,
    concurrency: Concurrency = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    web: WebPort = None,
    web_host: WebHost = LOOPBACK,
    insecure_local: InsecureLocal = False,
) -> None:
    """Run an app, its scheduler and a worker, in this process until Ctrl-C or SIGTERM."""
    from trax.cli.loading import load_app
    from trax.cli.logs import LogOptions
    from trax.cli.serve import open_web_listener, serve

    loaded = load_app(app)
    by = "trax run --web"
    listener = None if web is None else open_web_listener(web, web_host, by=by, insecure_local=insecure_local)
    serve(loaded, "all", LogOptions(log_format, log_level), concurrency=concurrency, web=listener)


def scheduler(app: AppName = None, /, *, log_format: LogFormat = None, log_level: LogLevel = None) -> None:
    """Enqueue scheduled jobs and dispatch queued ones until Ctrl-C or SIGTERM; `trax worker` runs them."""
    from trax.cli.loading import load_app
    from trax.cli.logs import LogOptions
    from trax.cli.serve import serve

    serve(load_app(app), "scheduler", LogOptions(log_format, log_level))


CHILD_VARIABLE: Final = "TRAX_WORKER_PROCESS"
"""Set in the child processes of `--processes`: they end with their parent."""

Processes = Annotated[
    int,
    Parameter(
        help="How many processes; one that dies is restarted.",
        validator=validators.Number(gte=1, lte=MAX_PROCESSES),
    ),
]

Trains = Annotated[str | None, Parameter(help="Run only these trains: a,b.")]
Groups = Annotated[str | None, Parameter(help="Run only jobs of these groups: x,y.")]


def worker(
    app: AppName = None,
    /,
    *,
    concurrency: Concurrency = None,
    trains: Trains = None,
    groups: Groups = None,
    processes: Processes = 1,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> int:
    """Run queued jobs until Ctrl-C or SIGTERM. It needs a scheduler, on this machine or another."""
    import asyncio

    from trax.cli.loading import load_app
    from trax.cli.logs import LogOptions
    from trax.cli.serve import database_warnings, serve
    from trax.server.processes import end_with_parent, keep_running
    from trax.server.roles import ProcessRole
    from trax.worker.app_context import WorkFilter, WorkFilterKeywords

    loaded, only = load_app(app), WorkFilterKeywords(trains=_names(trains), groups=_names(groups))
    WorkFilter.parse(loaded.trains, only)
    is_alone = processes == 1 and not os.environ.get(CHILD_VARIABLE)
    logs = LogOptions(log_format, log_level, may_draw=is_alone)
    if processes == 1:
        if not is_alone:
            end_with_parent()
        serve(loaded, "worker", logs, concurrency=concurrency, only=only, is_alone=is_alone)
        return 0
    logs.set_up()
    for warning in database_warnings(
        loaded.context.store.display_address, ProcessRole.WORKER, processes=processes
    ):
        logger.warning(warning)
    options = {"--concurrency": concurrency, "--trains": trains, "--groups": groups}
    command = _command(app, options, logs)
    return asyncio.run(keep_running(command, processes, environment={CHILD_VARIABLE: "1"}))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _command(app: str | None, options: dict[str, Any], logs: LogOptions) -> list[str]:
    """The command line of one child process, which loads the app itself."""
    from trax.cli.loading import app_name

    start = [sys.executable, "-c", "from trax.cli import main; main()", "worker", app_name(app)]
    options |= {"--log-format": logs.format, "--log-level": logs.level}
    return [*start, *(word for name, value in options.items() if value for word in (name, str(value)))]
