"""`trax run`: run all roles of an app in this process."""

from __future__ import annotations

from trax.cli.doorway import LOOPBACK, InsecureLocal, WebHost, WebPort, open_doorway
from trax.cli.loading import load_app
from trax.cli.log_setup import LogFormat, LogLevel, LogOptions
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
    """Run an app, its scheduler and a worker, in this process until Ctrl-C or SIGTERM."""
    loaded = load_app(app)
    by = "trax run --web"
    doorway = None if web is None else open_doorway(web, web_host, by=by, insecure_local=insecure_local)
    serve(loaded, "all", LogOptions(log_format, log_level), concurrency=concurrency, doorway=doorway)
