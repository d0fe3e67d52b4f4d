"""The status of the whole system (`trax status`), and its problems."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trax.records.count import COUNT_LIMIT
from trax.records.worker import WorkerRecord, declaration_conflicts

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""What has been due for longer is not being processed: every loop runs far more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Queue, runs, manifests and workers. A count of COUNT_LIMIT means that many or more."""

    now: datetime
    ready: int
    delayed: int
    pending: int
    pending_local: int
    running: int
    failed_last_hour: int
    dead_letters: int
    manifests_enabled: int
    manifests_disabled: int
    next_due_at: datetime | None
    next_delayed_at: datetime | None
    ready_since: datetime | None
    """Since when the next entry of the queue has been ready."""
    workers: tuple[WorkerRecord, ...]
    """The live workers."""
    servers: tuple[WorkerRecord, ...] = ()
    """The live servers that declare manifests, with or without a worker."""
    parked: int = 0
    """Entries that wait because no live worker accepts their train or their group."""
    parked_trains: tuple[str, ...] = ()
    """The trains of parked entries; only some of them if there are many."""


def problems(status: Status) -> list[str]:
    """The problems that an operator must solve, one sentence each."""
    found: list[str] = []
    overdue = status.now - OVERDUE_AFTER
    if status.next_due_at is not None and status.next_due_at < overdue:
        found.append(f"no scheduler checks manifests: one is due since {status.next_due_at:%H:%M:%S} UTC")
    if status.next_delayed_at is not None and status.next_delayed_at < overdue:
        found.append(
            f"no scheduler reads the queue: an entry is due since {status.next_delayed_at:%H:%M:%S} UTC"
        )
    if status.parked:
        trains = ", ".join(map(repr, status.parked_trains))
        parked = format_count(status.parked).replace(" is", " entry is").replace(" are", " entries are")
        found.append(f"{parked} parked: no live worker accepts train {trains}")
    found += declaration_conflicts(status.servers)
    if status.workers:
        return found
    if status.pending_local:
        found.append(f"no worker is alive, and {format_count(status.pending_local)} pending for one")
    elif _is_stuck(status, overdue):
        found.append(f"no worker is alive, and {format_count(status.ready)} ready in the queue")
    return found


def format_count(number: int) -> str:
    what = f"{number}+" if number >= COUNT_LIMIT else str(number)
    return f"{what} is" if number == 1 else f"{what} are"


def _is_stuck(status: Status, overdue: datetime) -> bool:
    """Whether ready entries wait and no run is active. With other executors no worker is needed here."""
    is_active = status.pending or status.running
    return not is_active and status.ready_since is not None and status.ready_since < overdue
