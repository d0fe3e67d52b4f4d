"""Warnings about databases that do not fit how they are used, such as SQLite on several machines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Protocol, Self

from cyclopts import Parameter, validators
from rich.console import Console
from rich.progress import Progress

from trax.bounds import MAX_SLOTS
from trax.cli.live_view import read_live_view, show_view
from trax.clock import is_set_within
from trax.errors import StoreError, import_extra
from trax.escapes import visible_text
from trax.server.roles import ProcessRole
from trax.store.url import file_of
from trax.worker.loop import StopSignals, freeze_loaded_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from trax.app.app import Trax
    from trax.cli.logs import LogOptions, RecentLines
    from trax.store import Store
    from trax.web.serve import WebListener
    from trax.worker.work_filter import WorkFilterKeywords


def database_warnings(
    address: str, role: ProcessRole, *, processes: int = 1, other_hosts: Iterable[str] = ()
) -> list[str]:
    """The warnings for these servers on this database. `elsewhere`: other hosts with live workers."""
    if address.startswith("memory:"):
        return _in_memory(role)
    if not address.startswith("sqlite:"):
        return []
    found: list[str] = []
    if others := sorted(set(other_hosts)):
        found.append(
            f"workers on {', '.join(others)} also use the SQLite file {address}: SQLite is not safe on a "
            "shared file system, and jobs can be lost; use PostgreSQL for more than one machine"
        )
    if processes > 1 or role is not ProcessRole.ALL:
        found.append(
            f"several processes share the SQLite file {address}: only one can write at a time, they notice "
            "changes only by polling, and all must run on this machine; PostgreSQL has no such limits"
        )
    return found


def _in_memory(role: ProcessRole) -> list[str]:
    if role is ProcessRole.ALL:
        return ["memory:// keeps all data in this process: no other process sees it, and it is lost at exit"]
    return [f"memory:// is visible to this process only, so a {role} alone cannot run jobs on it"]


LOOPBACK: Final = "127.0.0.1"
PORT_RANGE: Final = validators.Number(gte=0, lte=65535)
Port = Annotated[int, Parameter(validator=PORT_RANGE)]
WebPort = Annotated[
    int | None,
    Parameter("--web", help="Also serve the dashboard and the HTTP API on this port.", validator=PORT_RANGE),
]
WebHost = Annotated[
    str, Parameter(help="Address to listen on; other than loopback only if access is configured.")
]


InsecureLocal = Annotated[
    bool,
    Parameter(negative=(), help="Treat every local process as an operator, without signing in."),
]


def open_doorway(port: int, host: str, *, by: str, insecure_local: bool = False) -> WebListener:
    """Bind the port now, so that a port in use is an error before the server starts."""
    serving = import_extra("trax.web.serve", extra="web", feature=by)
    access = serving.Access.from_environment()
    return serving.WebListener(
        serving.ListenAddress(port, host), replace(access, insecure_local=True) if insecure_local else access
    )


async def sign_in_hint(doorway: WebListener, app: Trax) -> str | None:
    """How to sign in to the dashboard; None if access is configured."""
    if doorway.access.insecure_local:
        return f"every local process is an operator at {doorway.address} (--insecure-local)"
    try:
        link = await doorway.sign_in_link(app)
    except StoreError as error:
        return f"no sign-in link could be created: {error}; try `trax sessions link`"
    return None if link is None else f"sign in to the dashboard (once, within 1 h): {link}"


logger = logging.getLogger("trax")


class ServerOutput(Protocol):
    """Where a server prints its messages and status."""

    @property
    def terminal(self) -> Console | None:
        """The terminal to draw on; None if only lines can be written."""
        ...

    def say(self, text: str, /) -> None: ...

    def status_view(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        """Show the status of the app during the block."""
        ...


class TerminalOutput:
    """On a terminal: a live view while the app runs, plain lines before and after."""

    def __init__(self, lines: RecentLines) -> None:
        self._lines = lines
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    @property
    def terminal(self) -> Console:
        return self._console

    def say(self, text: str, /) -> None:
        self._console.print(visible_text(text, keep="\n"), soft_wrap=True)

    def status_view(self, app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        return show_view(app, self._console, heading, self._lines)


class LogOutput:
    """Without a terminal: everything goes to the log."""

    @property
    def terminal(self) -> None:
        return None

    def say(self, text: str, /) -> None:
        logger.info(text)

    def status_view(self, _app: Trax, heading: str, /) -> AbstractAsyncContextManager[None]:
        self.say(heading)
        return nullcontext()


QUIET_SECONDS: Final = 1.0
"""Seeding that takes longer shows a progress bar."""

AppName = Annotated[str | None, Parameter(help="module:app or file.py:app; default: $TRAX_APP.")]
Concurrency = Annotated[
    int | None,
    Parameter(
        help="How many jobs run at once; default: from the settings.",
        validator=validators.Number(gte=1, lte=MAX_SLOTS),
    ),
]


def serve(
    app: Trax,
    roles: str,
    logs: LogOptions,
    *,
    concurrency: int | None = None,
    only: WorkFilterKeywords | None = None,
    is_alone: bool = True,
    doorway: WebListener | None = None,
) -> None:
    """Run these roles of the app until a stop signal, with the dashboard at the doorway if there is one.

    `alone` is False for a child process: its parent logs the warnings.
    """
    lines = logs.set_up()
    face = LogOutput() if lines is None else TerminalOutput(lines)
    server = ServerProcess(app, ProcessRole.parse(roles), face, alone=is_alone, doorway=doorway)
    freeze_loaded_objects()
    asyncio.run(server.run(concurrency=concurrency, only=only))


class ServerProcess:
    """One process that runs an app, from start to stop."""

    def __init__(
        self,
        app: Trax,
        role: ProcessRole,
        face: ServerOutput,
        *,
        alone: bool = True,
        doorway: WebListener | None = None,
    ) -> None:
        self._app = app
        self._role = role
        self._face = face
        self._alone = alone
        self._doorway = doorway

    async def run(
        self,
        *,
        concurrency: int | None = None,
        only: WorkFilterKeywords | None = None,
        seconds: float | None = None,
    ) -> None:
        """Run until a stop signal, or for this many seconds."""
        with StopSignals() as signals:
            with SeedProgressBar(self._face.terminal) as bar:
                starting = self._app.start(
                    self._role, concurrency=concurrency, on_progress=bar.show, **(only or {})
                )
                await signals.run_until_stopped(starting, hurry=self._app.parts.store.hurry)
            try:
                if not signals.stop_requested.is_set():
                    await self._run_until_asked(signals, seconds)
            finally:
                await self._stop(signals)

    async def _run_until_asked(self, signals: StopSignals, seconds: float | None) -> None:
        async with self._web() as address:
            if (
                self._doorway is not None
                and (hint := await sign_in_hint(self._doorway, self._app)) is not None
            ):
                self._face.say(hint)
            async with self._face.status_view(self._app, await self._start_message(address)):
                await is_set_within(signals.stop_requested, seconds)

    def _web(self) -> AbstractAsyncContextManager[str | None]:
        return nullcontext() if self._doorway is None else self._doorway.serve(self._app)

    async def _start_message(self, web: str | None) -> str:
        store = await self._app.parts.store.open()
        if self._alone:
            for warning in database_warnings(
                store.address, self._role, other_hosts=await self._other_machines(store)
            ):
                logger.warning(warning)
        where = f"; dashboard on {web}" if web else ""
        return f"{start_message(self._app, self._role, store.address)}{where}; Ctrl-C stops"

    async def _other_machines(self, store: Store) -> list[str]:
        workers = (await asyncio.to_thread(read_live_view, self._app, store)).status.workers
        return [worker.host for worker in workers if worker.host != self._app.parts.identity.host]

    async def _stop(self, signals: StopSignals) -> None:
        timeout = self._app.parts.settings.shutdown_timeout.total_seconds()
        self._face.say(stop_message(self._app.active_trains, timeout))
        hurrying = asyncio.create_task(self._announce_hurry(signals.hurry_requested))
        try:
            await self._app.stop(signals.hurry_requested)
        finally:
            hurrying.cancel()
        self._face.say("stopped")

    async def _announce_hurry(self, hurried: asyncio.Event) -> None:
        await hurried.wait()
        self._face.say("interrupting active runs; they return to the queue")


def start_message(app: Trax, role: ProcessRole, address: str) -> str:
    """Roles, trains, schedules and database of this process."""
    schedules = len(app.parts.declarations.timetable().manifests)
    what = "all roles" if role is ProcessRole.ALL else role
    file = file_of(address)
    where = f" ({file.resolve()})" if file else ""
    counts = f"{count_noun(len(app.trains), 'train')} and {count_noun(schedules, 'schedule')}"
    return f"{what}: {counts} on {address}{where}"


def stop_message(running_trains: Sequence[str], timeout_seconds: float) -> str:
    """Which active runs the shutdown waits for."""
    if not running_trains:
        return "stopping"
    trains = ", ".join(
        train if count == 1 else f"{count} of {train}"
        for train, count in Counter(running_trains).most_common()
    )
    runs = count_noun(len(running_trains), "run")
    return (
        f"stopping: waiting up to {timeout_seconds:g} s for {runs} to end ({trains}); "
        "Ctrl-C again interrupts them and returns them to the queue"
    )


def count_noun(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class SeedProgressBar:
    """A progress bar that appears only if seeding takes longer than a second."""

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
        """Update the bar. Called from the seeding thread."""
        if not self._is_shown and time.monotonic() - self._began > QUIET_SECONDS:
            self._is_shown = True
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)
