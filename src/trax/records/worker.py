"""Registered processes (workers, receivers, schedulers), and their heartbeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self

from trax.clock import TextDuration


class WorkerKind(StrEnum):
    """The kind of process that a row in the table of workers describes."""

    WORKER = "worker"
    RECEIVER = "receiver"
    SCHEDULER = "scheduler"
    CALLER = "caller"
    """It runs trains with `app.run`."""


class HeartbeatStreak(NamedTuple):
    """The start and the last heartbeat of a process's heartbeats without a gap, by the database's clock.

    Only a process that could send heartbeats itself may declare others lost: an outage, a lock or a pause
    that affected all of them must not count.
    """

    since: datetime
    last: datetime

    @classmethod
    def empty(cls) -> Self:
        """No heartbeat yet, so no worker may be declared lost."""
        return cls(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))

    def after_heartbeat(self, now: datetime, longest_gap: timedelta) -> HeartbeatStreak:
        is_gap = self.since > now or now - self.last > longest_gap
        return HeartbeatStreak(now if is_gap else self.since, now)

    def has_lasted(self, period: timedelta, now: datetime) -> bool:
        """Whether heartbeats have been sent without a gap for this period until now."""
        return self.last >= now - period and self.since <= now - period


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A registered process. A restarted process is a new worker."""

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
    """Whether it also dispatches jobs."""
    kind: WorkerKind = WorkerKind.WORKER
    """The kind of process."""
    aliases: tuple[str, ...] = ()
    """The aliases of its trains."""
    groups: tuple[str, ...] | None = None
    """The groups whose runs it accepts; None: all."""
    version: str = ""
    """Its version of Trax."""
    app_version: str = ""
    """The version of your own code, if the setting `app_version` has one."""
    app: str = "default"
    """The name of its app, `Trax(name=…)`."""
    declares: str | None = None
    """A digest of the manifests that its code declares; None: it is not a scheduler."""

    @property
    def receives(self) -> bool:
        """Whether a submitter sends runs to it, so that it does not claim them itself."""
        return self.kind is WorkerKind.RECEIVER

    def accepts(self, train: str, group: str | None) -> bool:
        """Whether it claims runs of this train in this group."""
        if self.kind is not WorkerKind.WORKER or train not in (*self.trains, *self.aliases):
            return False
        return self.groups is None or group in self.groups

    @property
    def roles(self) -> tuple[str, ...]:
        return ("worker", "dispatcher") if self.dispatches else ("worker",)


class FailingLoop(NamedTuple):
    """A loop of a live process whose turns fail, and its last error."""

    host: str
    pid: int
    loop: str
    error: str

    def __str__(self) -> str:
        return f"loop {self.loop} of {self.host} (process {self.pid}) fails: {self.error}"


def declaration_conflicts(workers: Iterable[WorkerRecord]) -> list[str]:
    """One sentence for each app whose servers declare different manifests or groups."""
    by_app: defaultdict[str, dict[str, WorkerRecord]] = defaultdict(dict)
    for worker in workers:
        if worker.declares is not None:
            by_app[worker.app].setdefault(worker.declares, worker)
    return [
        f"servers of app {app!r} declare different manifests or groups: {_server_names(servers.values())}; "
        "manifests that only some declare are not retired; "
        "stop the old servers, or give another app its own Trax(name=…)"
        for app, servers in sorted(by_app.items())
        if len(servers) > 1
    ]


def _server_names(servers: Iterable[WorkerRecord]) -> str:
    """Host and process of each server."""
    return ", ".join(f"{server.host} (process {server.pid})" for server in servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """One run that a worker holds now."""

    id: int
    train: str
    manifest: str | None
    started_at: datetime
    current_junction: str | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, the time since its last heartbeat, and its first runs; `running` counts all its runs."""

    worker: WorkerRecord
    silent_for: TextDuration
    is_lost: bool
    running: int
    jobs: tuple[RunningJob, ...] = ()

    @property
    def free_slots(self) -> int:
        return max(0, self.worker.concurrency - self.running)
