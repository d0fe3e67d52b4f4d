"""One module per contender, all with the same methods, each run in the contender's own environment.

jobs.py                what the jobs do, and what they report
__main__.py            the process that a benchmark starts: it fills, works, offers or waits, as it is told
postgresql.py          what the contenders on PostgreSQL share
trax_jobs.py           Trax
pgqueuer_jobs.py       PgQueuer
awa_jobs.py            awa
oban_jobs.py           Oban
procrastinate_jobs.py  Procrastinate
dbos_jobs.py           DBOS
saq_jobs.py            SAQ on Valkey
celery_jobs.py         Celery on Valkey
public_queue.py        the process that the public queue benchmark starts, with another contract: JSON lines
public_trax.py         Trax in it
public_pgqueuer.py     PgQueuer in it

Nothing but the standard library is imported here.
"""

from __future__ import annotations

import asyncio
import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

FILL = 1_000


class Adapter(ABC):
    """What a benchmark needs of a contender; `url` is its database."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create the tables if they are missing."""

    async def fill(self, jobs: int) -> None:
        """Queue no-op jobs, before the measurement starts."""
        for done in range(0, jobs, FILL):
            await self.add_many(min(FILL, jobs - done))

    @abstractmethod
    async def add_many(self, count: int) -> None:
        """Queue many no-op jobs, in the fastest way of the contender."""

    @abstractmethod
    async def add_one(self) -> None:
        """Queue one job that does nothing."""

    @abstractmethod
    async def add_tell(self, asked: float) -> None:
        """Queue one job that reports when it started, and when it was enqueued."""

    @abstractmethod
    async def work(self) -> None:
        """Start processing jobs, and return."""

    @abstractmethod
    async def is_done(self) -> bool:
        """Whether every queued job has ended and its result is stored; must be very cheap."""

    @abstractmethod
    async def close(self) -> None:
        """Stop processing jobs."""


def run_in_loop(process: Coroutine[Any, Any, None]) -> None:
    """Run a whole process: in uvloop where it is installed, else in the standard event loop."""
    try:
        uvloop: Any = importlib.import_module("uvloop")
    except ImportError:
        asyncio.run(process)
    else:
        uvloop.run(process)
