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
    dispatches: bool = False
    """Whether it also lets jobs through the gate."""
    receives: bool = False
    """Whether runs are brought to it by a submitter, instead of it coming for them."""
    groups: tuple[str, ...] | None = None
    """The groups whose runs it takes; None: all."""
    version: str = ""
    """Which release of Trax it runs."""
    app_version: str = ""
    """Which release of your own code it runs, where that was said."""

    @property
    def roles(self) -> tuple[str, ...]:
        return ("worker", "dispatcher") if self.dispatches else ("worker",)
