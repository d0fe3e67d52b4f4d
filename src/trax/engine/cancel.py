"""Cancel queued entries and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.engine.finish import apply_results
from trax.events import Topic
from trax.records.result import NO_RUN, ResultKind, RunResult
from trax.records.states import Origin, State
from trax.store import dialect
from trax.store.announce import announce
from trax.store.manifests import manifest_rows
from trax.store.queue import requeue
from trax.store.runs import metadata, rescue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.queue.requeue import WithdrawnEntry
    from trax.store.runs.metadata import CancelledRun

SCHEDULE_ORIGINS: Final = (Origin.SCHEDULE, Origin.RETRY, Origin.REQUEUE)
"""Origins of entries that a schedule waits for: without them it would never continue."""

CANCELLED_BEFORE_START: Final = "cancelled by request before it started"


def withdraw(connection: Connection, ids: Sequence[int], settings: Settings, *, now: datetime) -> list[int]:
    """Cancel the entries among these that are still queued; returns their ids. Their schedules continue.

    Lock order, as everywhere: the gate, then manifests, then entries. So an entry has either been dispatched
    or never will be.
    """
    dialect.take_gate_lock(connection)
    manifest_rows.lock(connection, requeue.manifests_of(connection, ids))
    withdrawn = requeue.withdraw(connection, ids)
    ended = [_cancellation_result(NO_RUN, entry) for entry in withdrawn if entry.origin in SCHEDULE_ORIGINS]
    apply_results(connection, ended, settings, now=now)
    if withdrawn:
        announce(connection, Topic.FINISHED)
    return sorted(row.id for row in withdrawn)


def cancel_runs(
    connection: Connection, ids: Sequence[int], settings: Settings, *, now: datetime
) -> list[int]:
    """Cancel the pending runs among these, and ask those in progress to stop; returns their ids.

    In this order, because a pending run may start in between, but a started run never becomes pending again.
    """
    ended = metadata.cancel_pending(connection, ids, reason=CANCELLED_BEFORE_START, now=now)
    requested = rescue.request_cancel(connection, ids)
    apply_results(connection, [_cancellation_result(run.id, run) for run in ended], settings, now=now)
    if ended:
        announce(connection, Topic.FINISHED, Topic.WORK_QUEUE)
    return sorted([*(row.id for row in ended), *requested])


def _cancellation_result(metadata_id: int, cancelled: CancelledRun | WithdrawnEntry) -> RunResult:
    """An entry or a run that was cancelled before its start counts as a cancelled run of its manifest."""
    return RunResult(
        metadata_id=metadata_id,
        external_id=cancelled.external_id,
        worker_id=None,
        state=State.CANCELLED,
        kind=ResultKind.CANCELLED,
        manifest_id=cancelled.manifest_id,
        attempt=cancelled.attempt,
        failure_exception="Cancelled",
        failure_reason=CANCELLED_BEFORE_START,
    )
