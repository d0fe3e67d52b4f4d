"""What a contract test needs: a workspace (database, folder, app), and the engine to be tested.

Jobs append events to one file of the folder, unbuffered: so events survive a killed process, and the order of
the lines is the order of events across all processes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from trax.app.app import Trax
from trax.train import Retry, current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.engine.submitter import Submitter


FAST_SETTINGS: Final[dict[str, Any]] = {
    "heartbeat_interval": timedelta(seconds=0.2),
    "worker_lost_after": timedelta(seconds=2),
    "polling_interval": timedelta(seconds=0.1),
    "local_polling_interval": timedelta(seconds=0.1),
    "shutdown_timeout": timedelta(seconds=5),
    "hand_over_timeout": timedelta(seconds=5),
    "max_retry_delay": timedelta(seconds=0.5),
    "stale_pending_timeout": timedelta(seconds=5),
    "max_dispatch_attempts": 1000,
    "max_concurrent_dispatch": 10,
    "max_active_jobs": 7,
}
"""Short intervals for fast tests: a lost run is submitted again soon."""

GROUPS: Final = {"narrow": 2, "wide": 4}
"""Groups and their limits, for the crowd scenario."""

RETRY: Final = Retry(max_attempts=5, delay=timedelta(0))
URL: Final = "TRAX_CONTRACT_URL"
FOLDER: Final = "TRAX_CONTRACT_FOLDER"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A database both sides reach, a folder both can write to, and how many jobs make a crowd."""

    url: str
    folder: Path
    crowd: int = 1000

    @classmethod
    def from_environment(cls) -> Self:
        """The workspace of the process that started this one."""
        return cls(os.environ[URL], Path(os.environ[FOLDER]))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a process of the worker side."""
        return {URL: self.url, FOLDER: str(self.folder)}

    def app(self, **settings: Any) -> Trax:
        """The app of both sides. Its trains are controlled by job names and by files of the folder."""
        app = Trax(self.url, **{**FAST_SETTINGS, **settings})

        @app.train(retry=RETRY)
        async def work(name: str) -> str:
            """Waits while its hold file exists. A job named flaky… fails the first time."""
            self.log_event("began", name)
            while self.hold_file(name).exists():  # noqa: ASYNC110 - a file has no event to wait for
                await asyncio.sleep(0.01)
            if name.startswith("flaky") and self._attempt() == 1:
                self.log_event("ended", name)
                raise ValueError(f"{name} fails its first attempt")
            await asyncio.sleep(0.005)
            self.log_event("ended", name)
            return name.upper()

        @app.train(max_attempts=1, timeout=timedelta(seconds=1))
        async def dawdle(name: str) -> None:
            """Waits forever."""
            self.log_event("began", name)
            try:
                await asyncio.Event().wait()
            finally:
                self.log_event("ended", name)

        for group, limit in GROUPS.items():
            app.group(group, max_active_jobs=limit)
        return app

    def hold_file(self, name: str) -> Path:
        """The file that keeps a job from ending while it exists."""
        return self.folder / f"hold-{name}"

    @property
    def log(self) -> Path:
        return self.folder / "jobs"

    def log_event(self, event: str, name: str) -> None:
        run = current()
        line = f"{event} {run.metadata_id if run else 0} {name} {os.getpid()}\n"
        with self.log.open("ab", buffering=0) as log:
            log.write(line.encode())

    def _attempt(self) -> int:
        run = current()
        return run.attempt if run else 1


END_SECONDS = 30


class Engine(Protocol):
    """One way of running jobs elsewhere: its submitter, and its worker side.

    The worker side loads `site.app()`, in another process `Workspace.from_environment().app()`, and claims
    the runs it is given. A scenario starts it and stops it at the end; it may be started again after both.
    """

    def submitter(self, app: Trax) -> Submitter:
        """A new submitter for this app."""
        ...

    async def start(self, site: Workspace) -> None:
        """Start the worker side, and return when it is ready for runs."""
        ...

    async def stop(self) -> None:
        """Stop the worker side gracefully; no effect if it is not running."""
        ...

    async def kill(self) -> None:
        """Kill the worker side at once."""
        ...


class ProcessEngine:
    """An engine whose worker side is one process; implement `submitter` and `start`."""

    _process: EngineProcess | None = None

    async def launch(self, *command: str, site: Workspace, **environment: str) -> None:
        """Start Python with these arguments, such as "-m", "my.worker_side", and wait until it is ready."""
        self._process = await EngineProcess.start(*command, site=site, **environment)

    async def stop(self) -> None:
        far, self._process = self._process, None
        if far is not None:
            await far.stop()

    async def kill(self) -> None:
        far, self._process = self._process, None
        if far is not None:
            await far.kill()


class EngineProcess:
    """A worker side in its own process. It prints one line when it is ready; stderr goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], site: Workspace) -> None:
        log = site.folder / f"far-{len(list(site.folder.glob('far-*')))}.log"
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - the test of an engine gives the command
                command,
                env={**os.environ, **site.environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    @classmethod
    async def start(cls, *command: str, site: Workspace, **environment: str) -> EngineProcess:
        """Start Python with these arguments, such as "-m", "my.worker_side", and wait for its first line."""
        far = cls([sys.executable, *command], environment, site)
        if not await asyncio.to_thread(far._first_line):
            await far.kill()
            raise RuntimeError(f"worker side did not start; see far-*.log in {site.folder}")
        return far

    @property
    def pid(self) -> int:
        return self._process.pid

    async def stop(self) -> None:
        """Terminate it, and wait for its end."""
        self._process.terminate()
        await self._wait_for_exit()

    async def kill(self) -> None:
        self._process.kill()
        await self._wait_for_exit()

    async def _wait_for_exit(self) -> None:
        try:
            await asyncio.to_thread(self._process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def _first_line(self) -> bytes:
        assert self._process.stdout is not None  # noqa: S101 - PIPE was passed
        return self._process.stdout.readline()
