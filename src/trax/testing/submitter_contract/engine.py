"""What an engine supplies for the contract tests: its submitter, and the processes of its worker side."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.dispatch.submit import Submitter
    from trax.host.app import Trax
    from trax.testing.submitter_contract.site import Workspace

END_SECONDS = 30


class Engine(Protocol):
    """One way of running jobs elsewhere: its submitter, and its worker side.

    The worker side loads `site.app()`, in another process `Site.from_environment().app()`, and claims the
    runs it is given. A scenario starts it and stops it at the end; it may be started again after both.
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
