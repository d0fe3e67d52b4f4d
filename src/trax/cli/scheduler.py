"""`trax scheduler`: decides what runs when, and runs none of it."""

from __future__ import annotations

from trax.cli.loading import load_app
from trax.cli.log_setup import LogFormat, LogLevel, Logs
from trax.cli.serving import AppName, serve


def scheduler(app: AppName = None, /, *, log_format: LogFormat = None, log_level: LogLevel = None) -> None:
    """Fire schedules and let queued jobs through the gate until Ctrl-C or SIGTERM; workers run elsewhere."""
    serve(load_app(app), "scheduler", Logs(log_format, log_level))
