"""Rescue what would wait forever: runs of lost workers, stale runs, and manifests without a next due time.

The watchdog finds the manifests. A run failed from outside counts as a failure of its manifest or job.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from trax.engine.finish import apply_results
from trax.engine.retry import rules_of
from trax.events import Topic
from trax.records.audit import Actor, NewAudit, Via
from trax.records.manifest import ToRest
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.schedule.decide import decide
from trax.store import audit, workers
from trax.store.announce import announce
from trax.store.manifests import manifest_due
from trax.store.runs import hand_over, rescue
from trax.store.runs.rescue import ReapCause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from trax.records.manifest import ManifestState
    from trax.records.worker import HeartbeatStreak
    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.runs.rescue import ReapedRun

logger = logging.getLogger(__name__)
WORKER_LOST: Final = ReapCause("rescue_lost_workers", "WorkerLost", "its worker missed its heartbeat")
STALE_PENDING: Final = ReapCause(
    "reap_stale_pending_metadata", "StalePendingTimeout", "handed over, but not started in time"
)
STALE_IN_PROGRESS: Final = ReapCause(
    "reap_stale_in_progress_metadata",
    "StaleInProgressTimeout",
    "not ended in time, and no live worker holds it",
)
CLAIM_LOST: Final = ReapCause(
    "rescue_lost_workers", "Interrupted", "its worker missed its heartbeat before the run began"
)
BATCH_SIZE: Final = 1_000
"""How many manifests the watchdog checks in one query."""
MAX_NAMES_LOGGED: Final = 10
"""The maximum number of manifests that one log line names."""
WATCHDOG: Final = Actor("watchdog", Via.SYSTEM)


def can_declare_lost(heartbeat_streak: HeartbeatStreak | None, settings: Settings, now: datetime) -> bool:
    """Whether this server may declare workers lost: it must have sent heartbeats itself for the whole period.

    An outage, a lock or a pause affects all processes; after it every worker gets a full period to recover.
    """
    return heartbeat_streak is None or heartbeat_streak.has_lasted(settings.worker_lost_after, now)


def count_as_failures(
    connection: Connection, reaped: Sequence[ReapedRun], settings: Settings, *, now: datetime
) -> None:
    """Apply the retry policy, as for runs that failed in a worker. Runs that never began go back uncounted.

    A worker that dies cannot say whether it had just begun such a run. So this counts as a dispatch attempt:
    the entry is not claimed ahead again, and next time its run starts with the claim.
    """
    results = [
        RunResult(
            metadata_id=run.metadata_id,
            external_id=run.external_id,
            worker_id=None,
            state=State.FAILED if run.has_started else State.CANCELLED,
            kind=ResultKind.FAILURE if run.has_started else ResultKind.INTERRUPTED,
            manifest_id=run.manifest_id,
            failure_exception=run.exception,
            failure_reason=run.reason,
        )
        for run in reaped
    ]
    hand_over.count_dispatch_attempts(connection, [run.metadata_id for run in reaped if not run.has_started])
    apply_results(connection, results, settings, now=now)


def reap_runs_of_lost_workers(
    connection: Connection, settings: Settings, *, now: datetime
) -> list[ReapedRun]:
    """End the runs of workers that missed their heartbeat, and return them. Others are untouched."""
    alive_since = now - settings.worker_lost_after
    failed = rescue.fail_runs_of_lost_workers(connection, WORKER_LOST, alive_since=alive_since, now=now)
    released = rescue.release_claims_of_lost_workers(connection, CLAIM_LOST, alive_since=alive_since, now=now)
    return [*failed, *released]


def recover(connection: Connection, settings: Settings, *, now: datetime) -> int:
    """Fail the runs of workers that missed their heartbeat; returns how many. Others are untouched."""
    workers.delete_lost(connection, silent_since=now - settings.worker_lost_after)  # first, as in the manager
    reaped = reap_runs_of_lost_workers(connection, settings, now=now)
    count_as_failures(connection, reaped, settings, now=now)
    return len(reaped)


def repair_silent_manifests(connection: Connection, settings: Settings, *, now: datetime) -> list[str]:
    """Set the next due time of manifests that would never run again; returns their external ids.

    Such a manifest has no next due time, no entry or run that would set one, and no reason to rest. Every
    change of a manifest sets its next due time, so there should be none: each one found is a bug, and is
    logged.
    """
    suspects = manifest_due.find_without_next_due(connection)
    threshold = settings.default_misfire_threshold
    silent: list[int] = []
    for start in range(0, len(suspects), BATCH_SIZE):
        batch = suspects[start : start + BATCH_SIZE]
        states = manifest_due.load_states_unlocked(connection, batch, default_threshold=threshold)
        silent += _ids_not_resting(states, settings, now)
    if not silent:
        return []
    # Check again with the rows locked: a concurrent writer has either committed or waits for the lock.
    locked = manifest_due.load_states(connection, silent, default_threshold=threshold)
    repaired = manifest_due.mark_due(connection, _ids_not_resting(locked, settings, now), now=now)
    if repaired:
        _report_repairs(connection, repaired, now)
    return repaired


def _ids_not_resting(states: Iterable[ManifestState], settings: Settings, now: datetime) -> list[int]:
    """The ids of manifests that do not rest: they are due now or later, or became a dead letter."""
    rules = rules_of(settings)
    return [state.id for state in states if not isinstance(decide(state, rules, now), ToRest)]


def _report_repairs(connection: Connection, repaired: list[str], now: datetime) -> None:
    announce(connection, Topic.MANIFEST)
    names = ", ".join(repaired[:MAX_NAMES_LOGGED]) + (", …" if len(repaired) > MAX_NAMES_LOGGED else "")
    logger.warning(
        "manifests: %s had no next due time, no entry and no run, and would never have run again; "
        "they are due now: %s",
        len(repaired),
        names,
        extra={"manifests": repaired},
    )
    new = NewAudit(
        action="manifests.repair",
        noun="manifest",
        ids=tuple(repaired),
        count=len(repaired),
        before={"next_due_at": None},
        after={"next_due_at": now.isoformat()},
    )
    audit.add(connection, new, actor=WATCHDOG, reason="no next due time was set", now=now)
