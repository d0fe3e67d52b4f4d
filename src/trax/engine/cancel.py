"""Cancel queued entries and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.engine.finish import apply_results
from trax.events import Topic
from trax.records.result import ManifestResult, ResultKind
from trax.records.states import Origin
from trax.store import dialect
from trax.store.announce import announce
from trax.store.manifests import manifest_rows
from trax.store.queue import requeue
from trax.store.runs import metadata, rescue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
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
    _apply_cancellations(
        connection, [row for row in withdrawn if row.origin in SCHEDULE_ORIGINS], settings, now
    )
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
    _apply_cancellations(connection, ended, settings, now)
    if ended:
        announce(connection, Topic.FINISHED, Topic.WORK_QUEUE)
    return sorted([*(row.id for row in ended), *requested])


def _apply_cancellations(
    connection: Connection,
    cancelled: Iterable[CancelledRun | WithdrawnEntry],
    settings: Settings,
    now: datetime,
) -> None:
    """Treat entries and runs cancelled before their start as cancelled runs of their manifests."""
    ends = [
        ManifestResult(
            manifest_id=row.manifest_id, kind=ResultKind.CANCELLED, ended_at=now, attempt=row.attempt
        )
        for row in cancelled
        if row.manifest_id is not None
    ]
    apply_results(connection, ends, settings, now=now)
