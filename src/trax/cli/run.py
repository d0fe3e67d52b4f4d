"""`trax run`: every role in this process."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Annotated, Final, Self

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from trax.cli.loading import load_app
from trax.host.signals import stop_signal

if TYPE_CHECKING:
    from trax.host.app import Trax

QUIET_SECONDS: Final = 1.0
"""Seeding that takes longer shows how far it is."""

AppName = Annotated[str | None, Parameter(help="module:app or file.py:app; else $TRAX_APP.")]


def run(app: AppName = None, /) -> None:
    """Run every role in this process until Ctrl-C or SIGTERM: schedules fire, queued jobs run."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    asyncio.run(_run(load_app(app), Console(stderr=True)))


async def _run(app: Trax, console: Console) -> None:
    with SeedingBar(console) as bar:
        await app.start(on_progress=bar.show)
    try:
        address = (await app.parts.store.opened()).address
        count = len(app.parts.declarations.checked().manifests)
        console.print(f"{len(app.trains)} trains and {count} schedules on {address}; Ctrl-C stops")
        await stop_signal()
        console.print("stopping: what is running may end")
    finally:
        await app.stop()


class SeedingBar:
    """A progress bar that appears only when there is something to wait for."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(console=console, transient=True)
        self._task = self._progress.add_task("writing manifests", total=None)
        self._began = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._progress.stop()

    def show(self, done: int, total: int) -> None:
        """Called from the thread that writes."""
        if not self._is_shown and time.monotonic() - self._began > QUIET_SECONDS:
            self._is_shown = True
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)
