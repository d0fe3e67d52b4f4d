"""`trax why`: why a manifest, an entry or a run does not start, found with the functions of the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from trax.bounds import LARGEST_ID, is_id
from trax.engine.capacity import select_within
from trax.engine.job_dispatcher import MAX_ENTRIES_PER_CYCLE, build_capacity
from trax.engine.retry import rules_of
from trax.engine.routing import Routing, WorkerFleet, add_fleet_routes, load_fleet
from trax.engine.submitter import LOCAL
from trax.engine.trigger import HOW_TO_RESTORE, manifest_not_found
from trax.errors import NotFound, count_times
from trax.records.manifest import ManifestState, ToDeadLetter, ToDefer, ToEnqueue, ToRest, ToWait
from trax.records.states import Origin, QueueStatus, State
from trax.records.status import Reason
from trax.schedule.decide import decide
from trax.schedule.validate import ID_OR_NAME
from trax.settings import Settings
from trax.store import Connection, gate, groups, inspect, workers
from trax.store.manifests import manifest_due, manifest_rows
from trax.store.queue import work_queue
from trax.store.runs import metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trax.engine.capacity import Capacity
    from trax.records import Manifest, ManifestGroup, Metadata, WorkerRecord, WorkQueueEntry
    from trax.store import Store
    from trax.store.inspect import ManifestActivity
    from trax.worker.app_context import AppContext


NOUNS: Final = ("run", "entry")

MAX_ID_DIGITS: Final = len(str(LARGEST_ID))

WITHOUT_BLOCKER: Final[Mapping[str, Mapping[str, Any]]] = {
    "disabled": {"enabled": True},
    "group_disabled": {"group_enabled": True},
    "dead_letter": {
        "has_awaiting_dead_letter": False,
        "gave_up_reason": None,
        "failure_count": 0,
        "lifetime_failures": 0,
    },
    "active": {"active_runs": 0},
    "queued": {"has_queued_entry": False},
}
"""For each reason, the values of the manifest's state with which the reason does not apply."""


def why_of(context: WhyContext, target: str | int) -> list[Reason]:
    """The reasons for a manifest (by its external id), an entry or a run.

    An entry or a run is given by its id or by the external id that they share. An id alone is that of an
    entry, or of a run if there is no such entry; `run:7` and `entry:7` are explicit.
    """
    name = str(target)
    manifest = manifest_rows.get(context.connection, name) if isinstance(target, str) else None
    if manifest is not None:
        return why_manifest(context, manifest)
    noun, colon, number = name.rpartition(":")
    is_number = number.isdecimal() and number.isascii() and len(number) <= MAX_ID_DIGITS
    if not (is_number and is_id(int(number)) and (not colon or noun in NOUNS)):
        number = ""
    if noun != "run" and (entry := _find_entry(context, number, name)):
        return why_entry(context, entry)
    run_id = int(number) if number and noun != "entry" else inspect.find_run_id(context.connection, name)
    if run_id is not None and metadata.get(context.connection, run_id) is not None:
        return why_run(context, run_id)
    if not number:
        raise manifest_not_found(context.connection, name)
    raise NotFound(f"there is no {noun or 'entry, run or manifest'} {number}")


def _find_entry(context: WhyContext, number: str, name: str) -> WorkQueueEntry | None:
    entry_id = int(number) if number else inspect.find_entry_id(context.connection, name)
    return None if entry_id is None else work_queue.get(context.connection, entry_id)


def why_manifest(context: WhyContext, manifest: Manifest) -> list[Reason]:
    activity = inspect.load_activity(context.connection, manifest.id)
    under_way = list(_active_reasons(context, activity))
    threshold = context.settings.default_misfire_threshold
    [state] = manifest_due.load_states_unlocked(
        context.connection, [manifest.id], default_threshold=threshold
    )
    schedule = list(_schedule_reasons(context, manifest, state, activity))
    if under_way:  # leave out when the next run is due; keep what would block it
        schedule = [reason for reason in schedule if reason.code in (*WITHOUT_BLOCKER, "retired")]
    first_of_each: dict[str, Reason] = {}
    for reason in (*under_way, *schedule):
        first_of_each.setdefault(reason.code, reason)
    if len(first_of_each) > 1:
        first_of_each.pop("due", None)  # it is due only without the other reasons
    return list(first_of_each.values())


def _active_reasons(context: WhyContext, activity: ManifestActivity) -> Iterator[Reason]:
    for entry_id in activity.entry_ids[:1]:
        yield Reason("queued", f"its entry {entry_id} is queued", ids=activity.entry_ids)
        if entry := work_queue.get(context.connection, entry_id):
            yield from why_entry(context, entry)
    for metadata_id in activity.metadata_ids[:1]:
        yield from why_run(context, metadata_id)


def _schedule_reasons(
    context: WhyContext, manifest: Manifest, state: ManifestState, activity: ManifestActivity
) -> Iterator[Reason]:
    match decide(state, rules_of(context.settings), context.now):
        case ToRest(reason, code):
            yield _rest_reason(manifest, reason, code, activity)
            if code in WITHOUT_BLOCKER:
                yield from _schedule_reasons(
                    context, manifest, state._replace(**WITHOUT_BLOCKER[code]), activity
                )
        case ToWait(until):
            yield _wait_reason(context, state, until)
        case ToDefer(reason):
            yield _unreadable_reason(manifest, reason)
        case ToDeadLetter(reason):
            yield Reason("gave_up", f"it gave up ({reason}); the next manager cycle writes its dead letter")
        case ToEnqueue():
            yield _due_reason(context, manifest)


def _rest_reason(manifest: Manifest, reason: str, code: str, activity: ManifestActivity) -> Reason:
    match code:
        case "dead_letter":
            letters = ", ".join(map(str, activity.dead_letter_ids))
            return Reason(code, f"dead letter {letters} awaits an operator", ids=activity.dead_letter_ids)
        case "parent" | "parent_closed" if manifest.depends_on:
            return Reason(code, f"{reason} (it depends on {manifest.depends_on!r})")
        case "retired" if manifest.retired_at:
            return Reason(
                code, f"it has been retired since {format_time(manifest.retired_at)}: {HOW_TO_RESTORE}"
            )
        case "group_disabled":
            return Reason(code, f"its group {manifest.group!r} is disabled")
        case _:
            return Reason(code, reason)


def _unreadable_reason(manifest: Manifest, reason: str) -> Reason:
    next_due = manifest.next_due_at
    then = f"; next check at {format_time(next_due)}" if next_due else ""
    return Reason("broken", f"this server cannot evaluate its schedule: {reason}{then}", next_due)


def _wait_reason(context: WhyContext, state: ManifestState, until: datetime) -> Reason:
    """Waiting for its due time, or for the end of an exclusion: then the decision differs without it."""
    without = state._replace(timing=state.timing._replace(exclusions=()))
    if decide(without, rules_of(context.settings), context.now) != ToWait(until):
        return Reason("excluded", f"its exclusions keep it from running until {format_time(until)}", until)
    return Reason("waiting", f"it is next due at {format_time(until)}", until)


def _due_reason(context: WhyContext, manifest: Manifest) -> Reason:
    if not context.settings.manifest_manager_enabled:
        return Reason("manager_off", "it is due, but the manifest manager is off (manifest_manager_enabled)")
    next_due = manifest.next_due_at
    if next_due is None:
        return Reason("due", "it is due, but has no next due time; the watchdog sets one within 5 min")
    if next_due > context.now:
        return Reason("due", f"it is due; next check at {format_time(next_due)}", next_due)
    return Reason("due", "it is due; the next cycle queues it")


async def why(context: AppContext, what: str | int) -> list[Reason]:
    ID_OR_NAME("what", what)
    store = await context.store.open()
    return await store.ask(_read_reasons, store, context, what)


def _read_reasons(connection: Connection, store: Store, context: AppContext, what: str | int) -> list[Reason]:
    now = store.now(connection)
    fleet = context.own_routes().merge(load_fleet(connection))
    scene = WhyContext(
        connection=connection,
        settings=_settings(connection, context, now),
        routing=add_fleet_routes(context.routing, fleet),
        fleet=fleet,
        now=now,
    )
    return why_of(scene, what)


def _settings(connection: Connection, context: AppContext, now: datetime) -> Settings:
    """The settings of the schedulers, if this app has no trains; else its own."""
    own = context.live.refresh(connection)
    if len(context.trains):
        return own
    published = workers.load_published_settings(connection, alive_since=now - own.worker_lost_after)
    return own if published is None else context.live.load_published(published)


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
    if run.ended_at is None and run.started_at is None:
        text = f"run {run.id} was claimed by worker {run.worker} and starts when a slot of it becomes free"
        return Reason("active", text, ids=(run.id,))
    if run.ended_at is None:
        return Reason("active", f"run {run.id} started at {format_time(run.started_at)}", ids=(run.id,))
    return Reason("over", f"run {run.id} ended as {run.state} at {format_time(run.ended_at)}", ids=(run.id,))


def _why_pending(context: WhyContext, run: Metadata) -> list[Reason]:
    dispatched = f"run {run.id} was dispatched at {format_time(run.created_at)} and"
    if run.submitter != LOCAL:
        text = f"{dispatched} handed over to {run.submitter!r}, which has not started it"
        if not inspect.is_handed_over(context.connection, run.id):
            text = f"{dispatched} waits to be handed over to {run.submitter!r}"
        return [Reason("handed_over", text, ids=(run.id,))]
    return [
        *_why_no_worker(context, run.train, run.group, waiting=False),
        Reason("pending", f"{dispatched} waits for a worker", ids=(run.id,)),
    ]


def _why_queued(context: WhyContext, entry: WorkQueueEntry) -> list[Reason]:
    facts = inspect.load_entry_facts(context.connection, entry.id)
    if facts.parked is not None:
        return [_why_parked(context, entry, facts.parked)]
    group = groups.get(context.connection, entry.group) if entry.group else None
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
    failure = inspect.last_failure(context.connection, entry.external_id)
    after = f" after {failure}" if failure else ""
    last = f", last with {failure}" if failure else ""
    if entry.dispatch_attempts and attempt == 1:
        times = count_times(entry.dispatch_attempts)
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
        context.settings, gate.load_limits(connection), inspect.count_active_runs(connection)
    )
    reasons: list[Reason] = []
    if capacity.is_full(0):
        text = f"max_active_jobs is reached: {capacity.active} of at most {capacity.limit} runs are active"
        reasons.append(Reason("full", text, ids=inspect.find_active_runs(connection)))
    if group is not None and capacity.group_is_full(group.id, 0):
        active = capacity.active_by_group.get(group.id, 0)
        text = f"its group {group.name!r} is full: {active} of at most {group.max_active_jobs} runs"
        reasons.append(Reason("group_full", text, ids=inspect.find_active_runs(connection, group.id)))
    return reasons or _why_others_first(context, entry, capacity)


def _why_others_first(context: WhyContext, entry: WorkQueueEntry, capacity: Capacity) -> list[Reason]:
    candidate = inspect.load_position(context.connection, entry.id)
    if candidate is None:
        return []
    ahead = inspect.find_ahead_of(context.connection, candidate, most=MAX_ENTRIES_PER_CYCLE)
    able = _workers_accepting(_live_workers(context), entry.train, entry.group)
    free = _free_slots(context, able, waiting=True) if context.routing.is_local else None
    capacity = replace(capacity, max_total=free or MAX_ENTRIES_PER_CYCLE)
    if candidate in select_within(capacity, [*ahead, candidate]):
        return []
    count = f"{len(ahead)} or more" if len(ahead) == MAX_ENTRIES_PER_CYCLE else f"{len(ahead)}"
    noun = "entry comes" if len(ahead) == 1 else "entries come"
    ids = tuple(each.id for each in ahead[: inspect.MAX_IDS])
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
    return max(0, slots - inspect.count_used_slots(context.connection, ids, most=slots, waiting_trains=names))
