"""Stopping what has not begun: entries that wait at the gate, and runs that wait for a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trax.admin.endings import apply_endings
from trax.events import Topic
from trax.records.ended import EndKind, ManifestEnd
from trax.records.states import Origin
from trax.store import dialect, executions, manifest_locks, metadata_sweeps, withdrawal
from trax.store.announcing import announce

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.executions import Stopped
    from trax.store.withdrawal import Withdrawn

STAND_IN: Final = (Origin.SCHEDULE, Origin.RETRY, Origin.REQUEUE)
"""The entries that a schedule waits for: without them it would never go on."""

BEFORE_IT_BEGAN: Final = "cancelled by request, before it began"


def withdraw(connection: Connection, ids: Sequence[int], settings: Settings, *, now: datetime) -> list[int]:
    """Cancel those of these entries that are still queued; returns which. Their schedules go on.

    The locks are taken in the order of everybody else: the gate, then manifests, then entries. So an entry
    has either passed the gate or never will.
    """
    dialect.take_gate_lock(connection)
    manifest_locks.lock(connection, withdrawal.manifests_of(connection, ids))
    withdrawn = withdrawal.withdraw(connection, ids)
    _go_on(connection, [row for row in withdrawn if row.origin in STAND_IN], settings, now)
    if withdrawn:
        announce(connection, Topic.FINISHED)
    return sorted(row.id for row in withdrawn)


def cancel_runs(
    connection: Connection, ids: Sequence[int], settings: Settings, *, now: datetime
) -> list[int]:
    """End those of these runs that are pending, and ask those in progress to stop; returns which.

    In this order, because a run may begin in between, and none that has begun becomes pending again.
    """
    ended = executions.cancel_pending(connection, ids, reason=BEFORE_IT_BEGAN, now=now)
    asked = metadata_sweeps.request_cancel(connection, ids)
    _go_on(connection, ended, settings, now)
    if ended:
        announce(connection, Topic.FINISHED, Topic.WORK_QUEUE)
    return sorted([*(row.id for row in ended), *asked])


def _go_on(
    connection: Connection, stopped: Iterable[Stopped | Withdrawn], settings: Settings, now: datetime
) -> None:
    """What was stopped before it began means to its manifest what a cancelled run means."""
    ends = [
        ManifestEnd(manifest_id=row.manifest_id, kind=EndKind.CANCELLED, ended_at=now, attempt=row.attempt)
        for row in stopped
        if row.manifest_id is not None
    ]
    apply_endings(connection, ends, settings, now=now)
