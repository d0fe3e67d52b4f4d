"""What the commands that run an app share: they say what they do, and stop when they are asked to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Final, Self

from cyclopts import Parameter, validators
from rich.progress import Progress

from trax.bounds import MOST_SLOTS
from trax.cli.caveats import caveats
from trax.cli.doorway import entrance
from trax.cli.faces import Drawn, Logged
from trax.cli.view import look
from trax.clock import is_set_within
from trax.host.collector import spare_what_is_loaded
from trax.host.roles import Role
from trax.host.signals import StopSignals
from trax.store.url import file_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from rich.console import Console

    from trax.cli.faces import Face
    from trax.cli.log_setup import Logs
    from trax.host.app import Trax
    from trax.host.takes import Only
    from trax.store import Store
    from trax.web.serving import Doorway

logger = logging.getLogger("trax")

QUIET_SECONDS: Final = 1.0
"""Seeding that takes longer shows how far it is."""

AppName = Annotated[str | None, Parameter(help="module:app or file.py:app; else $TRAX_APP.")]
Concurrency = Annotated[
    int | None,
    Parameter(
        help="How many jobs run at once; else what the settings say.",
        validator=validators.Number(gte=1, lte=MOST_SLOTS),
    ),
]


def serve(
    app: Trax,
    roles: str,
    logs: Logs,
    *,
    concurrency: int | None = None,
    only: Only | None = None,
    alone: bool = True,
    doorway: Doorway | None = None,
) -> None:
    """Run these roles of the app until the process is asked to end, with its control room at the doorway.

    One that is not `alone` is one of several that a parent started, and leaves it to the parent to warn.
    """
    lines = logs.set_up()
    face = Logged() if lines is None else Drawn(lines)
    server = Server(app, Role.named(roles), face, alone=alone, doorway=doorway)
    spare_what_is_loaded()
    asyncio.run(server.run(concurrency=concurrency, only=only))


class Server:
    """One process that runs an app, from the start to the end it is asked for."""

    def __init__(
        self, app: Trax, role: Role, face: Face, *, alone: bool = True, doorway: Doorway | None = None
    ) -> None:
        self._app = app
        self._role = role
        self._face = face
        self._alone = alone
        self._doorway = doorway

    async def run(
        self, *, concurrency: int | None = None, only: Only | None = None, seconds: float | None = None
    ) -> None:
        """Until a signal asks for the end, or for so many seconds."""
        with StopSignals() as signals:
            with SeedingBar(self._face.terminal) as bar:
                starting = self._app.start(
                    self._role, concurrency=concurrency, on_progress=bar.show, **(only or {})
                )
                await signals.unless_asked(starting, hurry=self._app.parts.store.hurry)
            try:
                if not signals.asked.is_set():
                    await self._work(signals, seconds)
            finally:
                await self._stop(signals)

    async def _work(self, signals: StopSignals, seconds: float | None) -> None:
        async with self._web() as address:
            if self._doorway is not None and (way_in := await entrance(self._doorway, self._app)) is not None:
                self._face.say(way_in)
            async with self._face.shown(self._app, await self._greeting(address)):
                await is_set_within(signals.asked, seconds)

    def _web(self) -> AbstractAsyncContextManager[str | None]:
        return nullcontext() if self._doorway is None else self._doorway.served(self._app)

    async def _greeting(self, web: str | None) -> str:
        store = await self._app.parts.store.opened()
        if self._alone:
            for one in caveats(store.address, self._role, elsewhere=await self._other_machines(store)):
                logger.warning(one)
        where = f"; dashboard on {web}" if web else ""
        return f"{greeting(self._app, self._role, store.address)}{where}; Ctrl-C stops"

    async def _other_machines(self, store: Store) -> list[str]:
        living = (await asyncio.to_thread(look, self._app, store)).status.workers
        return [worker.host for worker in living if worker.host != self._app.parts.identity.host]

    async def _stop(self, signals: StopSignals) -> None:
        patience = self._app.parts.settings.shutdown_timeout.total_seconds()
        self._face.say(farewell(self._app.under_way, patience))
        hurrying = asyncio.create_task(self._say_when(signals.hurried))
        try:
            await self._app.stop(signals.hurried)
        finally:
            hurrying.cancel()
        self._face.say("stopped")

    async def _say_when(self, hurried: asyncio.Event) -> None:
        await hurried.wait()
        self._face.say("putting back to the queue what still runs")


def greeting(app: Trax, role: Role, address: str) -> str:
    """What runs here, and where its data is."""
    schedules = len(app.parts.declarations.checked().manifests)
    what = "all roles" if role is Role.ALL else role
    file = file_of(address)
    where = f" ({file.resolve()})" if file else ""
    said = f"{counted(len(app.trains), 'train')} and {counted(schedules, 'schedule')}"
    return f"{what}: {said} on {address}{where}"


def farewell(under_way: Sequence[str], patience: float) -> str:
    """What the end waits for."""
    if not under_way:
        return "stopping"
    trains = ", ".join(
        train if count == 1 else f"{count} of {train}" for train, count in Counter(under_way).most_common()
    )
    return (
        f"stopping: waiting up to {patience:g} s for {counted(len(under_way), 'run')} to end ({trains}); "
        "Ctrl-C again puts back to the queue what still runs"
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class SeedingBar:
    """A progress bar that appears only when there is something to wait for."""

    def __init__(self, terminal: Console | None) -> None:
        self._progress = Progress(console=terminal, transient=True, disable=terminal is None)
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
