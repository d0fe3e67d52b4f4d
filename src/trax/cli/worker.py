"""`trax worker`: runs what a scheduler elsewhere has let through, in one process or in several."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated, Any, Final

from cyclopts import Parameter, validators

from trax.bounds import MOST_PROCESSES
from trax.cli.caveats import caveats
from trax.cli.loading import app_name, load_app
from trax.cli.log_setup import LogFormat, LogLevel, Logs
from trax.cli.serving import AppName, Concurrency, serve
from trax.host.processes import end_with_parent, keep_running
from trax.host.roles import Role
from trax.host.takes import Only, Takes

logger = logging.getLogger("trax")

CHILD: Final = "TRAX_WORKER_PROCESS"
"""Set for the processes of `--processes`: they end when their parent does."""

Processes = Annotated[
    int,
    Parameter(
        help="How many processes; one that dies is replaced.",
        validator=validators.Number(gte=1, lte=MOST_PROCESSES),
    ),
]

Trains = Annotated[str | None, Parameter(help="Take only runs of these trains: a,b.")]
Groups = Annotated[str | None, Parameter(help="Take only runs of these groups: x,y.")]


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
    """Run queued jobs until Ctrl-C or SIGTERM. It needs a scheduler, here or elsewhere."""
    loaded, only = load_app(app), Only(trains=_names(trains), groups=_names(groups))
    Takes.checked(loaded.trains, only)
    is_alone = processes == 1 and not os.environ.get(CHILD)
    logs = Logs(log_format, log_level, may_draw=is_alone)
    if processes == 1:
        if not is_alone:
            end_with_parent()
        serve(loaded, "worker", logs, concurrency=concurrency, only=only, alone=is_alone)
        return 0
    logs.set_up()
    for one in caveats(loaded.parts.store.shown_address, Role.WORKER, processes=processes):
        logger.warning(one)
    given = {"--concurrency": concurrency, "--trains": trains, "--groups": groups}
    command = _command(app, given, logs)
    return asyncio.run(keep_running(command, processes, environment={CHILD: "1"}))


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",")]


def _command(app: str | None, given: dict[str, Any], logs: Logs) -> list[str]:
    """The same command for one process. Each loads the app by itself: nothing is shared by accident."""
    start = [sys.executable, "-c", "from trax.cli import main; main()", "worker", app_name(app)]
    given |= {"--log-format": logs.format, "--log-level": logs.level}
    return [*start, *(word for name, value in given.items() if value for word in (name, str(value)))]
