"""`trax run`: every role in this process."""

from __future__ import annotations

from trax.cli.doorway import LOOPBACK, InsecureLocal, WebHost, WebPort, opened
from trax.cli.loading import load_app
from trax.cli.log_setup import LogFormat, LogLevel, Logs
from trax.cli.serving import AppName, Concurrency, serve


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
    """Run every role in this process until Ctrl-C or SIGTERM: schedules fire, queued jobs run."""
    loaded = load_app(app)
    by = "trax run --web"
    doorway = None if web is None else opened(web, web_host, by=by, insecure_local=insecure_local)
    serve(loaded, "all", Logs(log_format, log_level), concurrency=concurrency, doorway=doorway)
