"""How the whole stands at one moment, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trax.records.count import COUNTED_TO
from trax.records.worker import Worker, disagreements

PATIENCE: Final = timedelta(minutes=1)
"""What is not taken up for so long has nobody who does it: every loop looks far more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What waits, what runs and who is there. A count of COUNTED_TO means that many or more."""

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
    """Since when the entry that is next at the gate may run."""
    workers: tuple[Worker, ...]
    """Those that live."""
    servers: tuple[Worker, ...] = ()
    """Those of them, and those without a worker, that say which manifests their code declares."""
    parked: int = 0
    """Entries that wait because no live worker takes their train or their group."""
    parked_trains: tuple[str, ...] = ()
    """The trains that parked entries wait for; some of them, where they are many."""


def problems(status: Status) -> list[str]:
    """What an operator must see to, a sentence each; none when all is well."""
    found: list[str] = []
    overdue = status.now - PATIENCE
    if status.next_due_at is not None and status.next_due_at < overdue:
        found.append(f"no scheduler looks at manifests: one is due since {status.next_due_at:%H:%M:%S} UTC")
    if status.next_delayed_at is not None and status.next_delayed_at < overdue:
        found.append(
            f"no scheduler looks at the queue: an entry waits since {status.next_delayed_at:%H:%M:%S} UTC"
        )
    if status.parked:
        trains = ", ".join(map(repr, status.parked_trains))
        waiting = counted(status.parked).replace(" is", " entry waits").replace(" are", " entries wait")
        found.append(f"{waiting} outside the gate: no live worker takes train {trains}")
    found += disagreements(status.servers)
    if status.workers:
        return found
    if status.pending_local:
        found.append(f"no worker lives, and {counted(status.pending_local)} pending for one")
    elif _is_stuck(status, overdue):
        found.append(f"no worker lives, and {counted(status.ready)} ready in the queue")
    return found


def counted(number: int) -> str:
    what = f"{number}+" if number >= COUNTED_TO else str(number)
    return f"{what} is" if number == 1 else f"{what} are"


def _is_stuck(status: Status, overdue: datetime) -> bool:
    """Trains may all be executed elsewhere, without a worker here: then something is under way."""
    under_way = status.pending or status.running
    return not under_way and status.ready_since is not None and status.ready_since < overdue
