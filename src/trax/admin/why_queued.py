"""Why an entry is queued or a run is pending, found with the functions that the dispatcher uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from trax.admin.job_dispatcher import MAX_ENTRIES_PER_CYCLE, build_capacity
from trax.dispatch.capacity import select_within
from trax.dispatch.fleet import WorkerFleet
from trax.dispatch.routing import LOCAL, Routing
from trax.records.reason import Reason
from trax.records.states import Origin, QueueStatus, State
from trax.settings import Settings
from trax.store import Connection, gate, manifest_groups, metadata, why, workers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.dispatch.capacity import Capacity
    from trax.records import ManifestGroup, Metadata, WorkerRecord, WorkQueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyContext:
    """The connection, settings, routing, fleet and moment of one question."""

    connection: Connection
    settings: Settings
    routing: Routing
    fleet: WorkerFleet
    now: datetime


def why_entry(context: WhyContext, entry: WorkQueueEntry) -> list[Reason]:
    """Why an entry is queued, or what happened to it."""
    if entry.status is QueueStatus.CANCELLED:
        return [Reason("withdrawn", f"entry {entry.id} was withdrawn from the queue", ids=(entry.id,))]
    if entry.status is QueueStatus.DISPATCHED:
        return [] if entry.metadata_id is None else why_run(context, entry.metadata_id)
    due = Reason("due", "it is due; the next cycle dispatches it", ids=(entry.id,))
    return _why_queued(context, entry) or [due]


def why_run(context: WhyContext, metadata_id: int) -> list[Reason]:
    run = metadata.get(context.connection, metadata_id)
    if run is None:
        return [Reason("over", f"run {metadata_id} has ended, and its record was deleted")]
    return _why_pending(context, run) if run.state is State.PENDING else [_state_reason(run)]


def format_time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _state_reason(run: Metadata) -> Reason:
    if run.ended_at is None:
        return Reason("active", f"run {run.id} started at {format_time(run.started_at)}", ids=(run.id,))
    return Reason("over", f"run {run.id} ended as {run.state} at {format_time(run.ended_at)}", ids=(run.id,))


def _why_pending(context: WhyContext, run: Metadata) -> list[Reason]:
    dispatched = f"run {run.id} was dispatched at {format_time(run.created_at)} and"
    if run.submitter != LOCAL:
        text = f"{dispatched} handed over to {run.submitter!r}, which has not started it"
        if not why.is_handed_over(context.connection, run.id):
            text = f"{dispatched} waits to be handed over to {run.submitter!r}"
        return [Reason("handed_over", text, ids=(run.id,))]
    return [
        *_why_no_worker(context, run.train, run.group, waiting=False),
        Reason("pending", f"{dispatched} waits for a worker", ids=(run.id,)),
    ]


def _why_queued(context: WhyContext, entry: WorkQueueEntry) -> list[Reason]:
    facts = why.load_entry_facts(context.connection, entry.id)
    if facts.parked is not None:
        return [_why_parked(context, entry, facts.parked)]
    group = manifest_groups.get(context.connection, entry.group) if entry.group else None
    closed = [] if group is None or group.enabled else [_group_disabled_reason(group)]
    if entry.scheduled_at is not None and entry.scheduled_at > context.now:
        return [_delay_reason(context, entry, facts.attempt, entry.scheduled_at), *closed]
    reasons = [*closed]
    if not context.settings.job_dispatcher_enabled:
        reasons.insert(0, Reason("dispatcher_off", "the job dispatcher is off (job_dispatcher_enabled)"))
    if not closed:
        reasons += _why_no_capacity(context, entry, group)
    return [*reasons, *_why_no_worker(context, entry.train, entry.group, waiting=True)]


def _why_parked(context: WhyContext, entry: WorkQueueEntry, key: str) -> Reason:
    timeout = context.settings.unknown_train_timeout or context.settings.stale_pending_timeout
    since = entry.parked_at or context.now
    text = f"{context.fleet.describe_missing(key)}; it has been parked since {format_time(since)}"
    return Reason(
        "no_worker", f"{text}, and becomes a dead letter at {format_time(since + timeout)}", since + timeout
    )


def _delay_reason(context: WhyContext, entry: WorkQueueEntry, attempt: int, moment: datetime) -> Reason:
    failure = why.last_failure(context.connection, entry.external_id)
    after = f" after {failure}" if failure else ""
    last = f", last with {failure}" if failure else ""
    if entry.dispatch_attempts and attempt == 1:
        times = "once" if entry.dispatch_attempts == 1 else f"{entry.dispatch_attempts} times"
        text = f"the hand-over failed {times}{last}; next attempt at {format_time(moment)}"
        return Reason("hand_over_failed", text, moment, (entry.id,))
    if entry.origin is Origin.RETRY or attempt > 1:
        return Reason("retry", f"it is retried at {format_time(moment)}{after}", moment, (entry.id,))
    return Reason("delayed", f"it is delayed until {format_time(moment)}", moment, (entry.id,))


def _group_disabled_reason(group: ManifestGroup) -> Reason:
    return Reason("group_disabled", f"its group {group.name!r} is disabled", ids=(group.id,))


def _why_no_capacity(context: WhyContext, entry: WorkQueueEntry, group: ManifestGroup | None) -> list[Reason]:
    """The limits that are reached; otherwise the entries before it that use the remaining capacity."""
    connection = context.connection
    capacity = build_capacity(
        context.settings, gate.load_limits(connection), why.count_active_runs(connection)
    )
    reasons: list[Reason] = []
    if capacity.is_full(0):
        text = f"max_active_jobs is reached: {capacity.active} of at most {capacity.limit} runs are active"
        reasons.append(Reason("full", text, ids=why.find_active_runs(connection)))
    if group is not None and capacity.group_is_full(group.id, 0):
        active = capacity.active_by_group.get(group.id, 0)
        text = f"its group {group.name!r} is full: {active} of at most {group.max_active_jobs} runs"
        reasons.append(Reason("group_full", text, ids=why.find_active_runs(connection, group.id)))
    return reasons or _why_behind(context, entry, capacity)


def _why_behind(context: WhyContext, entry: WorkQueueEntry, capacity: Capacity) -> list[Reason]:
    candidate = why.load_position(context.connection, entry.id)
    if candidate is None:
        return []
    ahead = why.find_ahead_of(context.connection, candidate, most=MAX_ENTRIES_PER_CYCLE)
    able = _workers_accepting(_live_workers(context), entry.train, entry.group)
    free = _free_slots(context, able, waiting=True) if context.routing.is_local else None
    capacity = replace(capacity, most=free or MAX_ENTRIES_PER_CYCLE)
    if candidate in select_within(capacity, [*ahead, candidate]):
        return []
    count = f"{len(ahead)} or more" if len(ahead) == MAX_ENTRIES_PER_CYCLE else f"{len(ahead)}"
    noun = "entry comes" if len(ahead) == 1 else "entries come"
    ids = tuple(each.id for each in ahead[: why.MAX_IDS])
    return [Reason("behind", f"{count} {noun} before it", ids=ids)]


def _why_no_worker(context: WhyContext, train: str, group: str | None, *, waiting: bool) -> list[Reason]:
    if context.routing.submitter_of(train) != LOCAL:
        return []
    if not (alive := _live_workers(context)):
        return [Reason("no_worker", "no worker is alive")]
    if not (able := _workers_accepting(alive, train, group)):
        ids = tuple(worker.id for worker in alive)
        return [
            Reason(
                "no_worker", context.fleet.describe_missing(context.fleet.parking_key(train, group)), ids=ids
            )
        ]
    if _free_slots(context, able, waiting=waiting) > 0:
        return []
    slots, ids = sum(worker.concurrency for worker in able), tuple(worker.id for worker in able)
    text = f"all {slots} slots of the workers that accept train {train!r} are in use"
    return [Reason("no_slot", text, ids=ids)]


def _live_workers(context: WhyContext) -> list[WorkerRecord]:
    since = context.now - context.settings.worker_lost_after
    return [worker for worker in workers.load_list(context.connection) if worker.heartbeat_at >= since]


def _workers_accepting(alive: Iterable[WorkerRecord], train: str, group: str | None) -> list[WorkerRecord]:
    return [worker for worker in alive if worker.accepts(train, group)]


def _free_slots(context: WhyContext, able: list[WorkerRecord], *, waiting: bool) -> int:
    """The number of free slots of these workers; with `waiting`, pending runs for them count as used."""
    slots = sum(worker.concurrency for worker in able)
    if not slots:
        return 0
    names = {name for worker in able for name in (*worker.trains, *worker.aliases)} if waiting else set[str]()
    ids = [worker.id for worker in able]
    return max(0, slots - why.count_used_slots(context.connection, ids, most=slots, waiting_trains=names))
