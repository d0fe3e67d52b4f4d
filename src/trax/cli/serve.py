"""Run a server for a command: its output and messages, its dashboard, and warnings about its database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from rich.console import Console
from rich.progress import Progress

from trax.cli.live_view import read_live_view, show_view
from trax.clock import format_duration
from trax.errors import StoreError, count_noun, import_extra
from trax.escapes import visible_text
from trax.server.roles import ProcessRole, ServerObserver
from trax.store.url import file_of
from trax.worker.loop import freeze_loaded_objects, run_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from trax.app.app import Trax
    from trax.cli.logs import LogOptions, RecentLines
    from trax.store import Store
    from trax.web.serve import WebListener
    from trax.worker.app_context import WorkFilterKeywords

logger = logging.getLogger("trax")


def open_web_listener(port: int, host: str, *, by: str, insecure_local: bool = False) -> WebListener:
    """Bind the port now, so that a port in use is an error before the server starts."""
    serving = import_extra("trax.web.serve", extra="web", feature=by)
    access = serving.Access.from_environment()
    return serving.WebListener(
        serving.ListenAddress(port, host), replace(access, insecure_local=True) if insecure_local else access
    )


async def sign_in_hint(listener: WebListener, app: Trax) -> str | None:
    """How to sign in to the dashboard; None if access is configured."""
    if listener.access.insecure_local:
        return f"every local process is an operator at {listener.address} (--insecure-local)"
    try:
        link = await listener.sign_in_link(app)
    except StoreError as error:
        return f"no sign-in link could be created: {error}; try `trax sessions link`"
    return None if link is None else f"sign in to the dashboard (once, within 1 h): {link}"


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


def serve(
    app: Trax,
    roles: str,
    logs: LogOptions,
    *,
    concurrency: int | None = None,
    only: WorkFilterKeywords | None = None,
    is_alone: bool = True,
    web: WebListener | None = None,
) -> None:
    """Run these roles of the app until a stop signal, with the dashboard if there is a listener for it.

    `is_alone` is False for a child process: its parent logs the warnings.
    """
    lines = logs.set_up()
    output = LogOutput() if lines is None else TerminalOutput(lines)
    with ServerCommand(app, ProcessRole.parse(roles), output, is_alone=is_alone, web=web) as command:
        run_server(app.serve(roles, concurrency=concurrency, observer=command, **(only or {})))


class ServerCommand(ServerObserver):
    """Prints the steps of a server, serves its dashboard, and stops it after `seconds`, if given."""

    def __init__(
        self,
        app: Trax,
        role: ProcessRole,
        output: ServerOutput,
        *,
        is_alone: bool = True,
        web: WebListener | None = None,
        seconds: float | None = None,
    ) -> None:
        self._app = app
        self._role = role
        self._output = output
        self._is_alone = is_alone
        self._web = web
        self._seconds = seconds
        self._bar = SeedProgressBar(output.terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def on_progress(self, done: int, total: int) -> None:
        self._bar.show(done, total)

    @asynccontextmanager
    async def while_running(self, stop: asyncio.Event, /) -> AsyncGenerator[None]:
        self._bar.close()
        freeze_loaded_objects()
        async with self._serve_web() as address:
            if self._web is not None and (hint := await sign_in_hint(self._web, self._app)) is not None:
                self._output.say(hint)
            async with self._output.status_view(self._app, await self._start_message(address)):
                if self._seconds is not None:
                    asyncio.get_running_loop().call_later(self._seconds, stop.set)
                yield

    @asynccontextmanager
    async def while_stopping(self, interrupt: asyncio.Event, /) -> AsyncGenerator[None]:
        self._bar.close()
        timeout = self._app.context.settings.shutdown_timeout.total_seconds()
        self._output.say(stop_message(self._app.active_trains, timeout))
        announcing = asyncio.create_task(self._announce_interrupt(interrupt))
        try:
            yield
        finally:
            announcing.cancel()
        self._output.say("stopped")

    def _serve_web(self) -> AbstractAsyncContextManager[str | None]:
        return nullcontext() if self._web is None else self._web.serve(self._app)

    async def _start_message(self, address: str | None) -> str:
        store = await self._app.context.store.open()
        if self._is_alone:
            for warning in database_warnings(
                store.address, self._role, other_hosts=await self._other_machines(store)
            ):
                logger.warning(warning)
        where = f"; dashboard on {address}" if address else ""
        return f"{start_message(self._app, self._role, store.address)}{where}; Ctrl-C stops"

    async def _other_machines(self, store: Store) -> list[str]:
        """The hosts of other live workers, for a warning about SQLite. A lost database ends no server."""
        if file_of(store.address) is None:
            return []
        try:
            workers = (await asyncio.to_thread(read_live_view, self._app, store)).status.workers
        except StoreError as error:
            logger.warning("workers of other machines could not be read: %s", error)
            return []
        return [worker.host for worker in workers if worker.host != self._app.context.identity.host]

    async def _announce_interrupt(self, interrupt: asyncio.Event) -> None:
        await interrupt.wait()
        self._output.say("interrupting active runs; they return to the queue")


def start_message(app: Trax, role: ProcessRole, address: str) -> str:
    """Roles, trains, schedules and database of this process."""
    schedules = len(app.context.declarations.timetable().manifests)
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
        f"stopping: waiting up to {format_duration(timeout_seconds)} for {runs} to end ({trains}); "
        "Ctrl-C again interrupts them and returns them to the queue"
    )


class SeedProgressBar:
    """A progress bar that appears only if seeding takes longer than a second."""

    def __init__(self, terminal: Console | None) -> None:
        self._progress = Progress(console=terminal, transient=True, disable=terminal is None)
        self._task = self._progress.add_task("writing manifests", total=None)
        self._began = time.monotonic()
        self._is_shown = False

    def close(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._progress.stop()

    def show(self, done: int, total: int) -> None:
        """Update the bar. Called from the seeding thread."""
        if not self._is_shown and time.monotonic() - self._began > QUIET_SECONDS:
            self._is_shown = True
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)


def database_warnings(
    address: str, role: ProcessRole, *, processes: int = 1, other_hosts: Iterable[str] = ()
) -> list[str]:
    """The warnings for these servers on this database. `other_hosts`: those with live workers."""
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
