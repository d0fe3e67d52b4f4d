"""Why an entry waits, or a run does not begin: asked of the same functions that let entries in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from trax.admin.job_dispatcher import AT_ONCE, capacity_under
from trax.dispatch.capacity import select_within
from trax.dispatch.fleet import Fleet
from trax.dispatch.routing import LOCAL, Routing
from trax.records.reason import Reason
from trax.records.states import Origin, QueueStatus, State
from trax.settings import Settings
from trax.store import Connection, gate, manifest_groups, metadata, why, workers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.dispatch.capacity import Capacity
    from trax.records import ManifestGroup, Metadata, Worker, WorkQueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where, when and under which settings it is asked, and what live workers and servers take."""

    connection: Connection
    settings: Settings
    routing: Routing
    fleet: Fleet
    now: datetime


def why_entry(scene: Scene, entry: WorkQueueEntry) -> list[Reason]:
    """What holds an entry, or what has become of it."""
    if entry.status is QueueStatus.CANCELLED:
        return [Reason("withdrawn", f"entry {entry.id} was withdrawn from the queue", ids=(entry.id,))]
    if entry.status is QueueStatus.DISPATCHED:
        return [] if entry.metadata_id is None else why_run(scene, entry.metadata_id)
    return _why_queued(scene, entry) or [Reason("due", "it is due; the next cycle takes it", ids=(entry.id,))]


def why_run(scene: Scene, metadata_id: int) -> list[Reason]:
    run = metadata.get(scene.connection, metadata_id)
    if run is None:
        return [Reason("over", f"run {metadata_id} is over, and its record was cleaned up")]
    return _why_pending(scene, run) if run.state is State.PENDING else [_fate(run)]


def stamp(moment: datetime | None) -> str:
    return "an unknown moment" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _fate(run: Metadata) -> Reason:
    if run.ended_at is None:
        return Reason("active", f"run {run.id} is in progress since {stamp(run.started_at)}", ids=(run.id,))
    return Reason("over", f"run {run.id} is {run.state} since {stamp(run.ended_at)}", ids=(run.id,))


def _why_pending(scene: Scene, run: Metadata) -> list[Reason]:
    let_in = f"run {run.id} was let in at {stamp(run.created_at)} and"
    if run.submitter != LOCAL:
        told = f"{let_in} was handed to {run.submitter!r}, which has not begun it"
        if not why.is_handed_over(scene.connection, run.id):
            told = f"{let_in} waits to be handed to {run.submitter!r}"
        return [Reason("handed_over", told, ids=(run.id,))]
    return [
        *_why_no_worker(scene, run.train, run.group, waiting=False),
        Reason("pending", f"{let_in} waits for a worker", ids=(run.id,)),
    ]


def _why_queued(scene: Scene, entry: WorkQueueEntry) -> list[Reason]:
    facts = why.facts(scene.connection, entry.id)
    if facts.parked is not None:
        return [_why_parked(scene, entry, facts.parked)]
    group = manifest_groups.get(scene.connection, entry.group) if entry.group else None
    closed = [] if group is None or group.enabled else [_group_is_disabled(group)]
    if entry.scheduled_at is not None and entry.scheduled_at > scene.now:
        return [_later(scene, entry, facts.attempt, entry.scheduled_at), *closed]
    reasons = [*closed]
    if not scene.settings.job_dispatcher_enabled:
        reasons.insert(0, Reason("dispatcher_off", "the dispatcher is off (job_dispatcher_enabled)"))
    if not closed:
        reasons += _why_no_room(scene, entry, group)
    return [*reasons, *_why_no_worker(scene, entry.train, entry.group, waiting=True)]


def _why_parked(scene: Scene, entry: WorkQueueEntry, key: str) -> Reason:
    timeout = scene.settings.unknown_train_timeout or scene.settings.stale_pending_timeout
    since = entry.parked_at or scene.now
    told = f"{scene.fleet.why_not(key)}; it waits outside the gate since {stamp(since)}"
    return Reason("no_worker", f"{told}, and is given up at {stamp(since + timeout)}", since + timeout)


def _later(scene: Scene, entry: WorkQueueEntry, attempt: int, moment: datetime) -> Reason:
    failure = why.last_failure(scene.connection, entry.external_id)
    after = f" after {failure}" if failure else ""
    if entry.dispatch_attempts and attempt == 1:
        times = "once" if entry.dispatch_attempts == 1 else f"{entry.dispatch_attempts} times"
        told = f"handing it over failed {times}{after}; it is tried again at {stamp(moment)}"
        return Reason("hand_over_failed", told, moment, (entry.id,))
    if entry.origin is Origin.RETRY or attempt > 1:
        return Reason("retry", f"it is tried again at {stamp(moment)}{after}", moment, (entry.id,))
    return Reason("delayed", f"it was put off until {stamp(moment)}", moment, (entry.id,))


def _group_is_disabled(group: ManifestGroup) -> Reason:
    return Reason("group_disabled", f"its group {group.name!r} is disabled", ids=(group.id,))


def _why_no_room(scene: Scene, entry: WorkQueueEntry, group: ManifestGroup | None) -> list[Reason]:
    """The limits it would not fit under though it came first; else those before it that fill what is left."""
    connection = scene.connection
    capacity = capacity_under(scene.settings, gate.limits(connection), why.occupancy(connection))
    reasons: list[Reason] = []
    if capacity.is_full(0):
        told = f"{capacity.active} of at most {capacity.limit} runs are active in all (max_active_jobs)"
        reasons.append(Reason("full", told, ids=why.holders(connection)))
    if group is not None and capacity.group_is_full(group.id, 0):
        active = capacity.active_by_group.get(group.id, 0)
        told = f"its group {group.name!r} is full: {active} of at most {group.max_active_jobs} runs"
        reasons.append(Reason("group_full", told, ids=why.holders(connection, group.id)))
    return reasons or _why_behind(scene, entry, capacity)


def _why_behind(scene: Scene, entry: WorkQueueEntry, capacity: Capacity) -> list[Reason]:
    it = why.in_line(scene.connection, entry.id)
    if it is None:
        return []
    ahead = why.ahead_of(scene.connection, it, most=AT_ONCE)
    able = _able(_alive(scene), entry.train, entry.group)
    free = _free_slots(scene, able, waiting=True) if scene.routing.is_local else None
    capacity = replace(capacity, most=free or AT_ONCE)
    if it in select_within(capacity, [*ahead, it]):
        return []
    count = f"{len(ahead)} or more" if len(ahead) == AT_ONCE else f"{len(ahead)}"
    noun = "entry comes" if len(ahead) == 1 else "entries come"
    return [Reason("behind", f"{count} {noun} before it", ids=tuple(one.id for one in ahead[: why.SHOWN]))]


def _why_no_worker(scene: Scene, train: str, group: str | None, *, waiting: bool) -> list[Reason]:
    if scene.routing.submitter_of(train) != LOCAL:
        return []
    if not (alive := _alive(scene)):
        return [Reason("no_worker", "no worker is alive")]
    if not (able := _able(alive, train, group)):
        ids = tuple(worker.id for worker in alive)
        return [Reason("no_worker", scene.fleet.why_not(scene.fleet.key(train, group)), ids=ids)]
    if _free_slots(scene, able, waiting=waiting) > 0:
        return []
    slots, ids = sum(worker.concurrency for worker in able), tuple(worker.id for worker in able)
    return [Reason("no_slot", f"all {slots} slots of workers that have train {train!r} are taken", ids=ids)]


def _alive(scene: Scene) -> list[Worker]:
    since = scene.now - scene.settings.worker_lost_after
    return [worker for worker in workers.listed(scene.connection) if worker.heartbeat_at >= since]


def _able(alive: Iterable[Worker], train: str, group: str | None) -> list[Worker]:
    return [worker for worker in alive if worker.takes(train, group)]


def _free_slots(scene: Scene, able: list[Worker], *, waiting: bool) -> int:
    """How many slots these workers have left; `waiting` counts what was let in for them already, too."""
    slots = sum(worker.concurrency for worker in able)
    if not slots:
        return 0
    names = {name for worker in able for name in (*worker.trains, *worker.aliases)} if waiting else set[str]()
    ids = [worker.id for worker in able]
    return max(0, slots - why.slots_taken(scene.connection, ids, most=slots, waiting=names))
