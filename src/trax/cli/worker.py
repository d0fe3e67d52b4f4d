"""`trax worker`: runs what a scheduler elsewhere has let through, in one process or in several."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Final

from cyclopts import Parameter, validators

from trax.cli.loading import app_name, load_app
from trax.cli.serving import AppName, Concurrency, serve, set_up_logging
from trax.host.processes import end_with_parent, keep_running

CHILD: Final = "TRAX_WORKER_PROCESS"
"""Set for the processes of `--processes`: they end when their parent does."""

Processes = Annotated[
    int, Parameter(help="How many processes; one that dies is replaced.", validator=validators.Number(gte=1))
]


def worker(app: AppName = None, /, *, concurrency: Concurrency = None, processes: Processes = 1) -> int:
    """Run queued jobs until Ctrl-C or SIGTERM. It needs a scheduler, here or elsewhere."""
    loaded = load_app(app)
    if processes == 1:
        if os.environ.get(CHILD):
            end_with_parent()
        serve(loaded, "worker", concurrency=concurrency)
        return 0
    set_up_logging()
    return asyncio.run(keep_running(_command(app, concurrency), processes, environment={CHILD: "1"}))


def _command(app: str | None, concurrency: int | None) -> list[str]:
    """The same command for one process. Each loads the app by itself: nothing is shared by accident."""
    start = [sys.executable, "-c", "from trax.cli import main; main()", "worker", app_name(app)]
    return start if concurrency is None else [*start, "--concurrency", str(concurrency)]
