"""Why an entry waits, or a run does not begin: asked of the same functions that let entries in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from trax.admin.job_dispatcher import AT_ONCE, capacity_under
from trax.dispatch.capacity import select_within
from trax.dispatch.routing import LOCAL, Routing
from trax.records.reason import Reason
from trax.records.states import Origin, QueueStatus, State
from trax.settings import Settings
from trax.store import Connection, gate, manifest_groups, metadata, why, workers

if TYPE_CHECKING:
    from trax.dispatch.capacity import Capacity
    from trax.records import ManifestGroup, Metadata, Worker, WorkQueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Where, when and under which settings it is asked; `synonyms` gives all names of the trains named."""

    connection: Connection
    settings: Settings
    routing: Routing
    now: datetime
    synonyms: Callable[[Iterable[str]], frozenset[str]]


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
        return [Reason("handed_over", f"{let_in} is for {run.submitter!r} to begin", ids=(run.id,))]
    return [
        *_why_no_worker(scene, run.train),
        Reason("pending", f"{let_in} waits for a worker", ids=(run.id,)),
    ]


def _why_queued(scene: Scene, entry: WorkQueueEntry) -> list[Reason]:
    group = manifest_groups.get(scene.connection, entry.group) if entry.group else None
    closed = [] if group is None or group.enabled else [_group_is_disabled(group)]
    if entry.scheduled_at is not None and entry.scheduled_at > scene.now:
        return [_later(entry, entry.scheduled_at), *closed]
    reasons = [*closed]
    if not scene.settings.job_dispatcher_enabled:
        reasons.insert(0, Reason("dispatcher_off", "the dispatcher is off (job_dispatcher_enabled)"))
    if not closed:
        reasons += _why_no_room(scene, entry, group)
    return [*reasons, *_why_no_worker(scene, entry.train)]


def _later(entry: WorkQueueEntry, moment: datetime) -> Reason:
    if entry.origin is Origin.RETRY:
        return Reason("retry", f"it is tried again at {stamp(moment)}", moment, (entry.id,))
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
    free = _free_slots(scene, _able(scene, entry.train)) if scene.routing.is_local else None
    capacity = replace(capacity, most=free or AT_ONCE)
    if it in select_within(capacity, [*ahead, it]):
        return []
    count = f"{len(ahead)} or more" if len(ahead) == AT_ONCE else f"{len(ahead)}"
    noun = "entry comes" if len(ahead) == 1 else "entries come"
    return [Reason("behind", f"{count} {noun} before it", ids=tuple(one.id for one in ahead[: why.SHOWN]))]


def _why_no_worker(scene: Scene, train: str) -> list[Reason]:
    if scene.routing.submitter_of(train) != LOCAL:
        return []
    if not (alive := _alive(scene)):
        return [Reason("no_worker", "no worker is alive")]
    if not (able := _able(scene, train)):
        ids = tuple(worker.id for worker in alive)
        return [Reason("no_worker", f"no live worker has train {train!r}", ids=ids)]
    if _free_slots(scene, able) > 0:
        return []
    slots, ids = sum(worker.concurrency for worker in able), tuple(worker.id for worker in able)
    return [Reason("no_slot", f"all {slots} slots of workers that have train {train!r} are taken", ids=ids)]


def _alive(scene: Scene) -> list[Worker]:
    since = scene.now - scene.settings.worker_lost_after
    return [worker for worker in workers.listed(scene.connection) if worker.heartbeat_at >= since]


def _able(scene: Scene, train: str) -> list[Worker]:
    names = scene.synonyms([train])
    return [worker for worker in _alive(scene) if names & set(worker.trains)]


def _free_slots(scene: Scene, able: list[Worker]) -> int:
    slots = sum(worker.concurrency for worker in able)
    if not slots:
        return 0
    return max(0, slots - why.slots_taken(scene.connection, [worker.id for worker in able], most=slots))
