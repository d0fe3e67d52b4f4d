"""A process that runs trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    host_environment: str = "server"
    host_instance_id: str = ""
    host_labels: Mapping[str, str] = field(default_factory=dict[str, str])
