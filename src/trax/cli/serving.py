"""What the commands that run an app share: they say what they do, and stop when they are asked to."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Annotated, Final, Self

from cyclopts import Parameter, validators
from rich.console import Console
from rich.progress import Progress

from trax.host.signals import StopSignals

if TYPE_CHECKING:
    from trax.host.app import Trax

QUIET_SECONDS: Final = 1.0
"""Seeding that takes longer shows how far it is."""

AppName = Annotated[str | None, Parameter(help="module:app or file.py:app; else $TRAX_APP.")]
Concurrency = Annotated[
    int | None,
    Parameter(
        help="How many jobs run at once; else what the settings say.", validator=validators.Number(gte=1)
    ),
]


def serve(app: Trax, roles: str, *, concurrency: int | None = None) -> None:
    """Run these roles of the app until the process is asked to end."""
    set_up_logging()
    asyncio.run(_serve(app, roles, Console(stderr=True), concurrency))


def set_up_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


async def _serve(app: Trax, roles: str, console: Console, concurrency: int | None) -> None:
    with StopSignals() as signals:
        with SeedingBar(console) as bar:
            starting = app.start(roles, concurrency=concurrency, on_progress=bar.show)
            await signals.unless_asked(starting)
        if not signals.asked.is_set():
            console.print(await _greeting(app, roles))
        await signals.asked.wait()
        console.print("stopping: what is running may end; a second signal puts it back to the queue")
        await app.stop(signals.hurried)


async def _greeting(app: Trax, roles: str) -> str:
    address = (await app.parts.store.opened()).address
    schedules = len(app.parts.declarations.checked().manifests)
    what = "" if roles == "all" else f"{roles}: "
    said = f"{_counted(len(app.trains), 'train')} and {_counted(schedules, 'schedule')}"
    return f"{what}{said} on {address}; Ctrl-C stops"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
