"""The ManifestManager: queue due manifests, and fail runs that timed out, went stale or lost their worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trax.bounds import LARGEST_COUNT
from trax.engine.finish import record_cycle
from trax.engine.rescue import (
    STALE_IN_PROGRESS,
    STALE_PENDING,
    can_declare_lost,
    count_as_failures,
    reap_runs_of_lost_workers,
)
from trax.engine.retry import jitter, rules_of
from trax.engine.routing import FleetCache, expire_parked, requeue_runs_without_worker
from trax.events import Topic
from trax.records.manifest import Decision, ManifestState, ToDeadLetter, ToDefer, ToEnqueue, ToRest, ToWait
from trax.records.states import Origin, ScheduleType
from trax.records.work_queue_entry import new_external_id
from trax.records.worker import HeartbeatStreak
from trax.schedule.decide import DueCandidate, decide, select_fairly
from trax.schedule.due import UNREADABLE_RECHECK_DELAY
from trax.settings import Settings
from trax.store import Connection, dead_letters, groups, workers
from trax.store.announce import announce
from trax.store.faults import RowsRefused, try_together
from trax.store.manifests import manifest_due, manifest_rows
from trax.store.manifests.manifest_due import CycleStart
from trax.store.queue.entry_batches import insert_statements
from trax.store.runs import rescue
from trax.store.runs.hand_over import return_to_outbox
from trax.store.runs.rescue import MaintenanceNeeds, ReapedRun
from trax.train import junction, train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trax.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManagerInput:
    """The input of one manager cycle. `cycle_number` rotates the first group.

    `heartbeat_streak` is that of this server; None: it may declare workers lost at once.
    """

    cycle_number: int = 0
    heartbeat_streak: HeartbeatStreak | None = None
    fleets: FleetCache | None = None
    """The cache of what live workers accept; None: unstartable jobs are not reaped."""


@dataclass(frozen=True, slots=True)
class DueManifests:
    """The manifests to check in this cycle; `has_more`: others are due and are left to the next cycle."""

    manifest_ids: list[int]
    has_more: bool


@dataclass(frozen=True, slots=True)
class TimedOutRuns:
    """The runs that were asked to stop because of their timeout."""

    metadata_ids: list[int]


@dataclass(frozen=True, slots=True)
class ReapedPendingRuns:
    """Pending runs that were failed because they were not started in time, and those handed over again."""

    runs: list[ReapedRun]
    handed_over_again: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True)
class ReapedInProgressRuns:
    """Runs in progress that no live worker holds and that were failed, and the number of lost workers."""

    runs: list[ReapedRun]
    lost_workers: int = 0


@dataclass(frozen=True, slots=True)
class UnstartableJobs:
    """Parked entries given up, and runs returned to the queue, because no live worker accepts them."""

    given_up: list[int]
    requeued: list[int]


@dataclass(frozen=True, slots=True)
class FailedManifests:
    """The manifests whose reaped runs were counted as failures."""

    manifest_ids: list[int]


@dataclass(frozen=True, slots=True)
class LoadedManifests:
    """The manifests of this cycle, locked."""

    states: list[ManifestState]


@dataclass(frozen=True, slots=True)
class ManifestDecisions:
    """The state of each manifest with the decision about it."""

    decisions: list[tuple[ManifestState, Decision]]


@dataclass(frozen=True, slots=True)
class ReapedJobs:
    """The ids of the dead letters of manifests that gave up."""

    dead_letters: list[int]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The manifests that get an entry, and the next due time of the others."""

    entries: list[tuple[ManifestState, ToEnqueue]]
    next_due: dict[int, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerResult:
    """What one cycle did. `run_again`: run another cycle at once."""

    queued: list[int]
    dead_letters: list[int]
    timed_out: list[int]
    reaped: list[int]
    handed_over_again: list[int] = field(default_factory=list[int])
    lost_workers: int = 0
    unstartable: list[int] = field(default_factory=list[int])
    """Entries given up and runs returned to the queue because no live worker accepts them."""
    deferred: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The manifests that this server could not evaluate, and why; they are left to other servers."""
    stale_priorities: bool = False
    """Whether a group's new priority must be applied again to queued entries."""
    run_again: bool

    @property
    def has_changes(self) -> bool:
        return bool(
            self.queued
            or self.dead_letters
            or self.timed_out
            or self.reaped
            or self.handed_over_again
            or self.unstartable
        )


@junction
def select_due_manifests(
    manager_input: ManagerInput, cycle_start: CycleStart, connection: Connection, settings: Settings
) -> tuple[DueManifests, MaintenanceNeeds]:
    """Select the due manifests, fairly among the groups, and say which kinds of runs need attention."""
    limit = settings.max_work_queue_entries_per_cycle
    if limit is None or len(cycle_start.due) <= limit:
        return DueManifests(
            [manifest_id for manifest_id, _ in cycle_start.due], has_more=False
        ), cycle_start.maintenance
    priorities = groups.priorities(connection, {group_id for _, group_id in cycle_start.due})
    waiting = [
        DueCandidate(manifest_id, group_id, priorities.get(group_id, 0))
        for manifest_id, group_id in cycle_start.due
    ]
    chosen = select_fairly(waiting, limit, turn=manager_input.cycle_number)
    return DueManifests([each.manifest_id for each in chosen], has_more=True), cycle_start.maintenance


@junction
def cancel_timed_out_jobs(
    needs: MaintenanceNeeds, connection: Connection, settings: Settings, now: datetime
) -> TimedOutRuns:
    """Ask every run that exceeds its timeout to stop, with or without a manifest."""
    if not needs.timed_out:
        return TimedOutRuns([])
    default = settings.default_job_timeout
    return TimedOutRuns(rescue.cancel_timed_out(connection, default=default, now=now))


@junction
def reap_stale_pending_metadata(
    needs: MaintenanceNeeds, connection: Connection, settings: Settings, now: datetime
) -> ReapedPendingRuns:
    """Hand over pending runs again that were not started in time; fail them after `max_dispatch_attempts`."""
    if not needs.stale_pending:
        return ReapedPendingRuns([])
    before, most = now - settings.stale_pending_timeout, settings.max_dispatch_attempts
    again = return_to_outbox(connection, waiting_since=before, max_attempts=most, now=now)
    if again:
        logger.warning("runs %s were not started in time; handing them over again", again)
        announce(connection, Topic.PENDING)
    given_up = rescue.fail_stale_pending(connection, STALE_PENDING, created_before=before, now=now)
    return ReapedPendingRuns(given_up, again)


@junction
def reap_stale_in_progress_metadata(
    manager_input: ManagerInput,
    needs: MaintenanceNeeds,
    connection: Connection,
    settings: Settings,
    now: datetime,
) -> ReapedInProgressRuns:
    """Fail the runs of lost workers at once, and runs that no worker holds after `stale_in_progress_timeout`.

    Lost workers are deleted first: a worker that sends a heartbeat at this moment either keeps its row and
    its runs, or learns that it has lost both.
    """
    if not needs.lost_workers or not can_declare_lost(manager_input.heartbeat_streak, settings, now):
        return ReapedInProgressRuns([])
    alive_since = now - settings.worker_lost_after
    lost_workers = workers.delete_lost(connection, silent_since=alive_since)
    lost = reap_runs_of_lost_workers(connection, settings, now=now)
    stale = rescue.fail_stale_in_progress(
        connection,
        STALE_IN_PROGRESS,
        started_before=now - settings.stale_in_progress_timeout,
        alive_since=alive_since,
        now=now,
    )
    return ReapedInProgressRuns([*lost, *stale], lost_workers)


@junction
def reap_unstartable_jobs(
    manager_input: ManagerInput,
    needs: MaintenanceNeeds,
    connection: Connection,
    settings: Settings,
    now: datetime,
) -> UnstartableJobs:
    """Give up entries parked for too long, and return runs to the queue that no worker accepts any more."""
    if manager_input.fleets is None or not (needs.unstartable and manager_input.fleets.is_sweep_due(now)):
        return UnstartableJobs([], [])
    fleet = manager_input.fleets.load(connection)
    return UnstartableJobs(
        expire_parked(connection, fleet, settings, now=now),
        requeue_runs_without_worker(connection, fleet, settings, now=now),
    )


@junction
def count_reaped_runs(
    pending: ReapedPendingRuns,
    in_progress: ReapedInProgressRuns,
    connection: Connection,
    settings: Settings,
    now: datetime,
) -> FailedManifests:
    """Count reaped runs as failures of their manifests.

    Not done by the reapers because of the lock order: `finish` locks runs before manifests, and so must a
    cycle.
    """
    reaped = [*pending.runs, *in_progress.runs]
    if reaped:
        count_as_failures(connection, reaped, settings, now=now)
    return FailedManifests([run.manifest_id for run in reaped if run.manifest_id is not None])


@junction
def load_manifests(
    due: DueManifests, failed: FailedManifests, connection: Connection, settings: Settings
) -> LoadedManifests:
    """Lock and load the manifests that are due or have failed."""
    ids = list(dict.fromkeys([*due.manifest_ids, *failed.manifest_ids]))
    threshold = settings.default_misfire_threshold
    return LoadedManifests(manifest_due.load_states(connection, ids, default_threshold=threshold))


@junction
def decide_manifests(loaded: LoadedManifests, settings: Settings, now: datetime) -> ManifestDecisions:
    rules = rules_of(settings, random=jitter())
    return ManifestDecisions([(state, decide(state, rules, now)) for state in loaded.states])


@junction
def reap_failed_jobs(
    manifest_decisions: ManifestDecisions, connection: Connection, now: datetime
) -> ReapedJobs:
    """Write a dead letter for each manifest that gives up."""
    given_up = {
        state.id: decision
        for state, decision in manifest_decisions.decisions
        if isinstance(decision, ToDeadLetter)
    }
    if not given_up:
        return ReapedJobs([])
    rows = {row.id: row for row in manifest_rows.load_rows(connection, list(given_up))}
    letters = [
        {name: getattr(rows[manifest_id], name) for name in ("train", "group_id", "priority", "input")}
        | {"manifest_id": manifest_id, "reason": decision.reason, "retry_count": decision.failures}
        | {"last_metadata_id": rows[manifest_id].failed_metadata_id}
        for manifest_id, decision in given_up.items()
    ]
    return ReapedJobs(dead_letters.add(connection, letters, now=now))


@junction
def determine_jobs_to_queue(manifest_decisions: ManifestDecisions) -> QueuePlan:
    """Separate the manifests that get an entry from those that only get a next due time (None: no time)."""
    entries: list[tuple[ManifestState, ToEnqueue]] = []
    next_due: dict[int, datetime | None] = {}
    for state, decision in manifest_decisions.decisions:
        match decision:
            case ToEnqueue():
                entries.append((state, decision))
            case ToWait(until):
                next_due[state.id] = until
            case ToDefer(_, until):
                next_due[state.id] = until
            case ToRest(reason):
                logger.debug("manifest %r has no next due time: %s", state.external_id, reason)
                next_due[state.id] = None
            case ToDeadLetter():
                next_due[state.id] = None
    return QueuePlan(entries, next_due)


@junction
def create_work_queue_entries(
    queue_plan: QueuePlan,
    due: DueManifests,
    manifest_decisions: ManifestDecisions,
    reaped: ReapedJobs,
    timed_out: TimedOutRuns,
    pending: ReapedPendingRuns,
    in_progress: ReapedInProgressRuns,
    unstartable: UnstartableJobs,
    connection: Connection,
    now: datetime,
) -> ManagerResult:
    """Write the next due times, the record of the cycle if it did anything, and the entries.

    The entries come last, so that the commit can be part of the same round trip. With reaped runs it cannot:
    they are read afterwards.
    """
    manifest_due.set_next_due(connection, queue_plan.next_due)
    result = ManagerResult(
        queued=[],
        dead_letters=reaped.dead_letters,
        timed_out=timed_out.metadata_ids,
        reaped=[run.metadata_id for run in (*pending.runs, *in_progress.runs)],
        handed_over_again=pending.handed_over_again,
        lost_workers=in_progress.lost_workers,
        unstartable=[*unstartable.given_up, *unstartable.requeued],
        deferred=[
            (state.external_id, decision.reason)
            for state, decision in manifest_decisions.decisions
            if isinstance(decision, ToDefer)
        ],
        run_again=due.has_more,
    )
    if result.has_changes or queue_plan.entries:
        record_cycle(connection, manifest_manager, now=now)
    queued = create_entries(connection, queue_plan.entries, now=now, commit=not result.reaped)
    return replace(result, queued=queued)


manifest_manager = train(
    "trax.manifest_manager",
    select_due_manifests
    >> cancel_timed_out_jobs
    >> reap_stale_pending_metadata
    >> reap_stale_in_progress_metadata
    >> reap_unstartable_jobs
    >> count_reaped_runs
    >> load_manifests
    >> decide_manifests
    >> reap_failed_jobs
    >> determine_jobs_to_queue
    >> create_work_queue_entries,
    extra=(Connection, Settings, datetime, CycleStart),
    exclude_from_max_active_jobs=True,
)


def run_manager_cycle(
    connection: Connection,
    store: Store,
    settings: Settings,
    manager_input: ManagerInput,
    *,
    settings_from_rows: Callable[[dict[str, str]], Settings] | None = None,
) -> ManagerResult | None:
    """Run one cycle; None if another server holds the leader lock, or the manager is disabled.

    `settings_from_rows` returns the settings in effect for the rows that operators have edited.
    """
    cycle_start = manifest_due.start_cycle(connection, settings, now=store.statement_now())
    settings = settings_from_rows(cycle_start.settings) if settings_from_rows else settings
    if not (cycle_start.is_leader and settings.manifest_manager_enabled):
        return None
    extra = {Connection: connection, Settings: settings, datetime: cycle_start.now, CycleStart: cycle_start}
    result = manifest_manager.run_blocking(manager_input, extra=extra)
    return replace(result, stale_priorities=cycle_start.maintenance.stale_priorities)


def create_entries(
    connection: Connection,
    due: Sequence[tuple[ManifestState, ToEnqueue]],
    *,
    now: datetime,
    commit: bool = False,
) -> list[int]:
    """Insert an entry for each manifest and update the manifest accordingly. Returns the entries' ids.

    With `commit` the transaction may be committed in the same round trip: nothing else follows in it.
    """
    if not due:
        return []
    announce(connection, Topic.WORK_QUEUE)
    try:
        return _create(connection, due, now, commit=commit)
    except RowsRefused:
        return [entry for item in due for entry in _create_one(connection, item, now)]


def _create_one(connection: Connection, item: tuple[ManifestState, ToEnqueue], now: datetime) -> list[int]:
    """Insert one entry; if the database refuses it (its manifest has one already), check it again later.

    One bad entry must not block the others, and nothing else would set the manifest's next due time.
    """
    try:
        return _create(connection, [item], now)
    except RowsRefused as refused:
        name = item[0].external_id
        text = "manifest %r: its entry could not be inserted: %s; trying again later"
        logger.warning(text, name, refused, extra={"manifest": name})
        manifest_due.set_next_due(connection, {item[0].id: now + UNREADABLE_RECHECK_DELAY})
        return []


def _create(
    connection: Connection,
    due: Sequence[tuple[ManifestState, ToEnqueue]],
    now: datetime,
    *,
    commit: bool = False,
) -> list[int]:
    retried = [state.id for state, decision in due if _is_dormant_retry(state, decision)]
    inputs = dead_letters.load_failed_inputs(connection, retried) if retried else {}
    rows = [_row(number, *item, inputs.get(item[0].id)) for number, item in enumerate(due)]
    steps = insert_statements(connection.dialect.name, rows, now=now)
    ids = {name: entry_id for entry_id, name in try_together(connection, *steps, commit=commit)[0]}
    return [ids[row["external_id"]] for row in rows]


def _is_dormant_retry(state: ManifestState, decision: ToEnqueue) -> bool:
    """Whether it is a retry of a dormant dependent: its input came from its activation, not its manifest."""
    is_dormant = state.timing.schedule_type is ScheduleType.DORMANT_DEPENDENT
    return is_dormant and decision.origin is Origin.RETRY


def _row(number: int, state: ManifestState, decision: ToEnqueue, own_input: str | None) -> dict[str, Any]:
    """The columns of an entry; missing columns are NULL."""
    is_retry = decision.origin is Origin.RETRY
    row: dict[str, Any] = {
        "number": number,
        "external_id": new_external_id(),
        "manifest_id": state.id,
        "origin": str(decision.origin),  # a plain str: binding an enum is slow
        "priority": decision.priority,
        "group_priority": state.group_priority,
        "attempt": min(state.failure_count + 1, LARGEST_COUNT) if is_retry else 1,
        "scheduled_for": decision.scheduled_for,
    }
    if own_input is not None:
        row["input"] = own_input
    if decision.scheduled_at is not None:
        row["scheduled_at"] = decision.scheduled_at
    if decision.next_due_at is not None:
        row["next_due_at"] = decision.next_due_at
    if decision.consumed_parent_success_at is not None:
        row["consumed_parent_success_at"] = decision.consumed_parent_success_at
    return row
