"""A process that runs trains."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that runs trains. A restarted process is another worker."""

    id: int
    host: str
    pid: int
    concurrency: int
    trains: tuple[str, ...]
    started_at: datetime
    heartbeat_at: datetime
