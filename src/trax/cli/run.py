"""`trax run`: every role in this process."""

from __future__ import annotations

from trax.cli.loading import load_app
from trax.cli.serving import AppName, Concurrency, serve


def run(app: AppName = None, /, *, concurrency: Concurrency = None) -> None:
    """Run every role in this process until Ctrl-C or SIGTERM: schedules fire, queued jobs run."""
    serve(load_app(app), "all", concurrency=concurrency)
