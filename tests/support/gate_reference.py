"""What a visit to the gate must admit, found in two slow ways: by reading every row, and by a full cycle.

`expected_entries` shares no code with the gate. `preview` is the deciding cycle of the engine without a
memory, in a transaction that is rolled back.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sqlalchemy import text

from trax.engine.job_dispatcher import DispatchInput, job_dispatcher
from trax.engine.live_settings import LiveSettings
from trax.engine.routing import FleetCache, Routing
from trax.store import Connection, admission
from trax.store.pipeline import run_together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from trax.engine.job_dispatcher import DispatchResult
    from trax.settings import Settings
    from trax.store import Store
    from trax.store.runs.claim import ClaimRequest


def preview(
    store: Store, base: Mapping[str, Any], routing: Routing, request: ClaimRequest | None
) -> DispatchResult:
    """What the deciding cycle does for this request; nothing of it stays."""
    live = LiveSettings.load(base, {})
    visit = DispatchInput(
        now=store.statement_now(),
        settings=live.current,
        settings_from_rows=live.accept,
        claim_request=request,
        needs_free_slot=request is not None and routing.is_local and not request.has_filter,
        fleets=FleetCache(),
        memory=None,
    )

    def run(connection: Connection) -> DispatchResult:
        with patch.object(admission, "commit_together", run_together):
            extra: dict[type, Any] = {Connection: connection, Routing: routing}
            result = job_dispatcher.run_blocking(visit, extra=extra)
        raise RolledBack(result)

    try:
        return store.run(run)
    except RolledBack as ended:
        return ended.result


class RolledBack(Exception):
    """Carries a result out of a transaction that must not be committed."""

    def __init__(self, result: DispatchResult) -> None:
        super().__init__()
        self.result = result


def expected_entries(
    connection: Connection, settings: Settings, request: ClaimRequest | None, *, now: datetime
) -> list[int]:
    """The entries that must be admitted, in order: every row is read, and the limits are applied by hand."""
    settings, _ = settings.with_overrides(_edited(connection))
    if not settings.job_dispatcher_enabled:
        return []
    active = _rows(
        connection,
        "SELECT group_id, state, submitter, train, worker_id FROM trax.metadata "
        "WHERE state IN ('pending', 'in_progress') AND NOT exempt",
    )
    pending = _rows(
        connection, "SELECT train FROM trax.metadata WHERE state = 'pending' AND submitter = 'local'"
    )
    workers = _rows(
        connection, "SELECT trains, concurrency, dispatches FROM trax.worker WHERE kind = 'worker'"
    )
    known = {train for worker in workers for train in worker.trains}
    startable = [entry for entry in _ready(connection, now) if entry.train in known]
    used, used_by_group = len(active), Counter(run.group_id for run in active)
    free = 10**6
    if request is not None:
        claimed = min(request.slots, sum(run.train in request.trains for run in pending))
        elsewhere = sum(worker.concurrency for worker in workers if not worker.dispatches) - len(pending)
        free = max(0, request.slots - claimed) + max(0, elsewhere)
    if settings.max_active_jobs is not None:
        free = min(free, settings.max_active_jobs - used)
    share, limits = settings.max_queued_jobs_per_cycle, _limits(connection)
    first = _walk(startable, limits, used_by_group, free, share)
    if request is None and len({entry.group_id for entry in startable}) > 1:
        return first
    # What is left after the shares goes to those that have more, in the order of the queue.
    others = [entry for entry in startable if entry.id not in first]
    chosen = [entry for entry in startable if entry.id in first]
    filled = set(_walk([*chosen, *others], limits, used_by_group, free, None))
    return [entry.id for entry in startable if entry.id in filled]


def _walk(
    entries: Sequence[Any],
    limits: Mapping[int, int],
    used: Counter[int | None],
    free: int,
    most_per_group: int | None,
) -> list[int]:
    selected: list[int] = []
    started = Counter[int]()
    for entry in entries:
        if len(selected) >= free:
            break
        group = entry.group_id
        if group is not None:
            is_over_share = most_per_group is not None and started[group] >= most_per_group
            if is_over_share or (group in limits and used[group] + started[group] >= limits[group]):
                continue
            started[group] += 1
        selected.append(entry.id)
    return selected


def _ready(connection: Connection, now: datetime) -> list[Any]:
    entries = [
        entry
        for entry in _rows(connection, "SELECT * FROM trax.work_queue WHERE status = 'queued'")
        if entry.parked is None and (entry.ready or entry.scheduled_at <= now)
    ]
    return sorted(
        entries, key=lambda entry: (-entry.group_priority, -entry.priority, entry.created_at, entry.id)
    )


def _limits(connection: Connection) -> dict[int, int]:
    rows = _rows(connection, "SELECT id, max_active_jobs, enabled FROM trax.manifest_group")
    limits = {row.id: row.max_active_jobs if row.enabled else 0 for row in rows}
    return {group: limit for group, limit in limits.items() if limit is not None}


def _edited(connection: Connection) -> dict[str, Any]:
    return {row.name: row.value for row in _rows(connection, "SELECT name, value FROM trax.setting")}


def _rows(connection: Connection, query: str) -> list[Any]:
    return list(connection.execute(text(query)).all())
