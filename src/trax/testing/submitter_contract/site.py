"""Where a scenario happens: a database, a folder, and the app that both sides load.

The jobs say what they do in one file of the folder, a line each, written at once: so it is there even if
their process is killed, and the order of the lines is the order in which things happened, in all processes.
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

QUICK: Final[dict[str, Any]] = {
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
"""Nobody wants to wait in a test. What is lost on the way is handed over again soon."""

GROUPS: Final = {"narrow": 2, "wide": 4}
"""The groups of a crowd, and how many of each may run at once."""

RETRY: Final = Retry(max_retries=5, delay=timedelta(0))
URL: Final = "TRAX_CONTRACT_URL"
FOLDER: Final = "TRAX_CONTRACT_FOLDER"


@dataclass(frozen=True, slots=True)
class Site:
    """A database both sides reach, a folder both can write to, and how many jobs make a crowd."""

    url: str
    folder: Path
    crowd: int = 1000

    @classmethod
    def from_environment(cls) -> Self:
        """The site that whoever started this process works at."""
        return cls(os.environ[URL], Path(os.environ[FOLDER]))

    @property
    def environment(self) -> dict[str, str]:
        """What a process of the far side finds the site by."""
        return {URL: self.url, FOLDER: str(self.folder)}

    def app(self, **settings: Any) -> Trax:
        """The app of both sides. Its trains do what their names and the files of the folder tell them."""
        app = Trax(self.url, **{**QUICK, **settings})

        @app.train(retry=RETRY)
        async def work(name: str) -> str:
            """Ends as soon as no file holds it. What is called flaky fails the first time."""
            self.note("began", name)
            while self.held(name).exists():  # noqa: ASYNC110 - a file tells nobody that it is gone
                await asyncio.sleep(0.01)
            if name.startswith("flaky") and self._attempt() == 1:
                self.note("ended", name)
                raise ValueError(f"{name} never works the first time")
            await asyncio.sleep(0.005)
            self.note("ended", name)
            return name.upper()

        @app.train(retry=RETRY, timeout=timedelta(seconds=1))
        async def dawdle(name: str) -> None:
            """Never ends by itself."""
            self.note("began", name)
            try:
                await asyncio.Event().wait()
            finally:
                self.note("ended", name)

        for group, limit in GROUPS.items():
            app.group(group, max_active_jobs=limit)
        return app

    def held(self, name: str) -> Path:
        """The file that keeps a job from ending."""
        return self.folder / f"hold-{name}"

    @property
    def log(self) -> Path:
        return self.folder / "jobs"

    def note(self, event: str, name: str) -> None:
        run = current()
        line = f"{event} {run.metadata_id if run else 0} {name} {os.getpid()}\n"
        with self.log.open("ab", buffering=0) as log:
            log.write(line.encode())

    def _attempt(self) -> int:
        run = current()
        return run.attempt if run else 1
