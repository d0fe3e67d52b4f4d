"""`trax scheduler`: run the scheduler roles of an app, without a worker."""

from __future__ import annotations

from trax.cli.loading import load_app
from trax.cli.log_setup import LogFormat, LogLevel, LogOptions
from trax.cli.serving import AppName, serve


def scheduler(app: AppName = None, /, *, log_format: LogFormat = None, log_level: LogLevel = None) -> None:
    """Enqueue scheduled jobs and dispatch queued ones until Ctrl-C or SIGTERM; `trax worker` runs them."""
    serve(load_app(app), "scheduler", LogOptions(log_format, log_level))
