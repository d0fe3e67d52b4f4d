"""What an engine supplies to be put through the scenarios."""

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
    from trax.testing.submitter_contract.site import Site

END_SECONDS = 30


class Engine(Protocol):
    """One way of executing elsewhere: its submitter, and the life of its far side.

    The far side loads `site.app()`, in another process `Site.from_environment().app()`, and takes up what it
    is handed. A scenario starts it, and stops it at the end; it may be started again after either ending.
    """

    def submitter(self, app: Trax) -> Submitter:
        """What hands over the runs of this app, a new one each time."""
        ...

    async def start(self, site: Site) -> None:
        """Have a far side that takes runs up, and return when it does."""
        ...

    async def stop(self) -> None:
        """Let the far side end in good order; nothing happens when there is none."""
        ...

    async def kill(self) -> None:
        """End the far side at once, whatever it is at."""
        ...


class ProcessEngine:
    """The life of a far side that is one process; `submitter` and `start` are left to say."""

    _far: FarProcess | None = None

    async def launch(self, *command: str, site: Site, **environment: str) -> None:
        """Start Python with these words, such as "-m", "my.far_side", and wait until it is ready."""
        self._far = await FarProcess.started(*command, site=site, **environment)

    async def stop(self) -> None:
        far, self._far = self._far, None
        if far is not None:
            await far.stop()

    async def kill(self) -> None:
        far, self._far = self._far, None
        if far is not None:
            await far.kill()


class FarProcess:
    """A far side in a process of its own. It says one line when it is ready; what it logs goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], site: Site) -> None:
        log = site.folder / f"far-{len(list(site.folder.glob('far-*')))}.log"
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - whoever tests an engine says what to start
                command,
                env={**os.environ, **site.environment, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    @classmethod
    async def started(cls, *command: str, site: Site, **environment: str) -> FarProcess:
        """Start Python with these words, such as "-m", "my.far_side", and wait for its first line."""
        far = cls([sys.executable, *command], environment, site)
        if not await asyncio.to_thread(far._first_line):
            await far.kill()
            raise RuntimeError(f"the far side did not start: see far-*.log in {site.folder}")
        return far

    @property
    def pid(self) -> int:
        return self._process.pid

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        await self._gone()

    async def kill(self) -> None:
        self._process.kill()
        await self._gone()

    async def _gone(self) -> None:
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
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        return self._process.stdout.readline()
