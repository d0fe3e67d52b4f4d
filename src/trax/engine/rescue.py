"""Count runs that were failed from outside (worker lost, stale) as failures of their manifests and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.engine.finish import apply_results
from trax.records.result import ResultKind, RunResult
from trax.records.states import State
from trax.store.runs.rescue import ReapCause

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.records.worker import HeartbeatStreak
    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.runs.rescue import ReapedRun

WORKER_LOST: Final = ReapCause("rescue_lost_workers", "WorkerLost", "its worker missed its heartbeat")


def can_declare_lost(heartbeat_streak: HeartbeatStreak | None, settings: Settings, now: datetime) -> bool:
    """Whether this server may declare workers lost: it must have sent heartbeats itself for the whole period.

    An outage, a lock or a pause affects all processes; after it every worker gets a full period to recover.
    """
    return heartbeat_streak is None or heartbeat_streak.has_lasted(settings.worker_lost_after, now)


def count_as_failures(
    connection: Connection, swept: Sequence[ReapedRun], settings: Settings, *, now: datetime
) -> None:
    """Apply the retry policy, as for runs that failed in a worker."""
    results = [
        RunResult(
            metadata_id=run.metadata_id,
            external_id=run.external_id,
            worker_id=None,
            state=State.FAILED,
            kind=ResultKind.FAILURE,
            manifest_id=run.manifest_id,
            failure_exception=run.exception,
            failure_reason=run.reason,
        )
        for run in swept
    ]
    apply_results(connection, results, settings, now=now)
