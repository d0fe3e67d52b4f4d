"""A process that runs trains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Self


class WorkerKind(StrEnum):
    """What a process with a row in the table of workers is there for."""

    WORKER = "worker"
    RECEIVER = "receiver"
    SCHEDULER = "scheduler"
    CALLER = "caller"
    """It runs trains with `app.run`."""


class Watch(NamedTuple):
    """Since when a process has beaten without a gap, and when it last did, by the database's clock.

    Only who could beat may say that others did not: an outage, a lock or a pause that it shared with them
    counts against nobody.
    """

    since: datetime
    last: datetime

    @classmethod
    def never(cls) -> Self:
        """Nothing was beaten yet, so nobody may be judged."""
        return cls(datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC))

    def after_beat(self, now: datetime, longest_gap: timedelta) -> Watch:
        is_gap = self.since > now or now - self.last > longest_gap
        return Watch(now if is_gap else self.since, now)

    def has_lasted(self, period: timedelta, now: datetime) -> bool:
        """Whether it goes on, and has for so long."""
        return self.last >= now - period and self.since <= now - period


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
    kind: WorkerKind = WorkerKind.WORKER
    """What it is there for."""
    aliases: tuple[str, ...] = ()
    """Other names that its trains are known under."""
    groups: tuple[str, ...] | None = None
    """The groups whose runs it takes; None: all."""
    version: str = ""
    """Which release of Trax it runs."""
    app_version: str = ""
    """Which release of your own code it runs, where that was said."""
    app: str = "default"
    """The name of its app, `Trax(name=…)`."""
    declares: str | None = None
    """A digest of the manifests that its code declares; None: it schedules none."""

    @property
    def receives(self) -> bool:
        """Whether runs are brought to it by a submitter, instead of it coming for them."""
        return self.kind is WorkerKind.RECEIVER

    def takes(self, train: str, group: str | None) -> bool:
        """Whether it comes for runs of this train in this group."""
        if self.kind is not WorkerKind.WORKER or train not in (*self.trains, *self.aliases):
            return False
        return self.groups is None or group in self.groups

    @property
    def roles(self) -> tuple[str, ...]:
        return ("worker", "dispatcher") if self.dispatches else ("worker",)


def disagreements(workers: Iterable[Worker]) -> list[str]:
    """A sentence for each app whose servers, of these, declare different manifests."""
    by_app: defaultdict[str, dict[str, Worker]] = defaultdict(dict)
    for one in workers:
        if one.declares is not None:
            by_app[one.app].setdefault(one.declares, one)
    return [
        f"servers of app {app!r} declare different manifests: {_names(servers.values())}; what only some "
        f"declare is not retired; stop the old ones, or give another app its own Trax(name=…)"
        for app, servers in sorted(by_app.items())
        if len(servers) > 1
    ]


def _names(servers: Iterable[Worker]) -> str:
    """One server for each set that is declared."""
    return ", ".join(f"{one.host} (process {one.pid})" for one in servers)
