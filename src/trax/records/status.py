"""The status of the installation: counts, problems, health; reasons, findings, and marks of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from trax.records.listing import COUNT_LIMIT
from trax.records.worker import FailingLoop, WorkerRecord, declaration_conflicts


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job does not run."""

    code: str
    """The reason in one word, for programs."""
    text: str
    """The reason as a sentence, for people."""
    until: datetime | None = None
    """When the reason ends by itself, if that is known."""
    ids: tuple[int, ...] = ()
    """The ids of the rows that cause it."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the database: its code, its result, and, if there is a problem, how to fix it."""

    code: str
    text: str
    fix: str | None = None

    @property
    def is_wrong(self) -> bool:
        return self.fix is not None


class ChangeTag(StrEnum):
    """What has changed."""

    EXECUTIONS = "executions"
    QUEUE = "queue"
    MANIFESTS = "manifests"
    DEAD_LETTERS = "dead_letters"
    SETTINGS = "settings"
    WORKERS = "workers"
    AUDIT = "audit"


ChangeMarks = Mapping[ChangeTag, tuple[Any, ...]]
"""For each tag a few values that differ when its data has changed."""


def find_changes(before: ChangeMarks | None, after: ChangeMarks) -> frozenset[ChangeTag]:
    """The tags that changed; none if there is no earlier state."""
    if before is None:
        return frozenset()
    return frozenset(tag for tag, marks in after.items() if before.get(tag) != marks)


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
    failing_loops: tuple[FailingLoop, ...] = ()
    """The loops of live processes whose turns fail."""
    parked: int = 0
    """Entries that wait because no live worker accepts their train or their group."""
    parked_trains: tuple[str, ...] = ()
    """The trains of parked entries; only some of them if there are many."""


def problems(status: Status) -> list[str]:
    """The problems that an operator must solve, one sentence each."""
    found = [*map(str, status.failing_loops)]
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


MAX_FAILURES_PER_HOUR: Final = 10
"""More failures in an hour than this make the condition degraded."""


class Condition(StrEnum):
    """The overall condition."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The numbers for a monitor. Counting stops at 10,000: `at_least` names counts that may be greater."""

    condition: Condition
    queue_depth: int
    in_progress: int
    failed_last_hour: int
    dead_letters: int
    at_least: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """The problems that an operator must solve, one sentence each."""


def health_of(status: Status) -> Health:
    """Degraded with open dead letters, with parked entries, or after many failures in the last hour.

    Also while servers of one app declare different manifests or groups, and while turns of a loop fail.
    """
    is_failing = status.dead_letters > 0 or status.failed_last_hour > MAX_FAILURES_PER_HOUR
    is_failing = is_failing or bool(status.failing_loops)
    is_degraded = is_failing or status.parked > 0 or bool(declaration_conflicts(status.servers))
    counted = {
        "queue_depth": (status.ready, status.delayed, status.parked),
        "in_progress": (status.running,),
        "failed_last_hour": (status.failed_last_hour,),
        "dead_letters": (status.dead_letters,),
    }
    return Health(
        condition=Condition.DEGRADED if is_degraded else Condition.HEALTHY,
        **{name: sum(parts) for name, parts in counted.items()},
        at_least=tuple(name for name, parts in counted.items() if max(parts) >= COUNT_LIMIT),
        problems=tuple(problems(status)),
    )
