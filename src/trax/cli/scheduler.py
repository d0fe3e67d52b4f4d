"""`trax scheduler`: decides what runs when, and runs none of it."""

from __future__ import annotations

from trax.cli.loading import load_app
from trax.cli.serving import AppName, serve


def scheduler(app: AppName = None, /) -> None:
    """Fire schedules and let queued jobs through the gate until Ctrl-C or SIGTERM; workers run elsewhere."""
    serve(load_app(app), "scheduler")
