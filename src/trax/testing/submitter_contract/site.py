"""The environment of a contract scenario: a database, a folder, and the app that both sides load.

Jobs append events to one file of the folder, unbuffered: so events survive a killed process, and the order of
the lines is the order of events across all processes.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from trax.host.app import Trax
from trax.train import Retry, current

FAST_SETTINGS: Final[dict[str, Any]] = {
    "heartbeat_interval": timedelta(seconds=0.2),
    "worker_lost_after": timedelta(seconds=2),
    "polling_interval": timedelta(seconds=0.1),
    "local_polling_interval": timedelta(seconds=0.1),
    "shutdown_timeout": timedelta(seconds=5),
    "hand_off_timeout": timedelta(seconds=5),
    "max_retry_delay": timedelta(seconds=0.5),
    "stale_pending_timeout": timedelta(seconds=5),
    "max_dispatch_attempts": 1000,
    "max_concurrent_dispatch": 10,
    "max_active_jobs": 7,
}
"""Short intervals for fast tests: a lost run is submitted again soon."""

GROUPS: Final = {"narrow": 2, "wide": 4}
"""Groups and their limits, for the crowd scenario."""

RETRY: Final = Retry(max_retries=5, delay=timedelta(0))
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
        """The site of the process that started this one."""
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
                raise ValueError(f"{name} never works the first time")
            await asyncio.sleep(0.005)
            self.log_event("ended", name)
            return name.upper()

        @app.train(retry=RETRY, timeout=timedelta(seconds=1))
        async def dawdle(name: str) -> None:
            """Waits for ever."""
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
