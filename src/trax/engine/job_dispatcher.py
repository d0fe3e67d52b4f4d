"""The JobDispatcher: admit queued entries within the limits, and assign them to workers and submitters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.engine.capacity import Capacity, select_with_shares, select_within
from trax.engine.routing import (
    FleetCache,
    Routing,
    WorkerFleet,
    add_fleet_routes,
    build_admissions,
    park_unstartable,
    unpark_startable,
)
from trax.settings import Settings
from trax.store import Connection, admission, gate, quick_gate
from trax.store.gate import GateSnapshot
from trax.store.gate_memory import Candidate, GateMemory
from trax.store.pipeline import commit_together
from trax.store.quick_gate import QuickTerms
from trax.store.runs.claim import Claimed, ClaimRequest
from trax.train import junction, train

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trax.store import Store
    from trax.store.pipeline import BoundStatement, Rows
    from trax.store.quick_gate import BoundVisit, Opening
    from trax.store.workers import FleetMark


MAX_ENTRIES_PER_CYCLE: Final = 500
"""The maximum number of entries that one cycle admits; a longer queue takes several cycles."""

MAX_ENTRIES_FOR_WORKER: Final = 1_000
"""The maximum for a worker with that many free slots: in larger batches each run costs less."""

READ_MARGIN: Final = 50
"""How many entries to read beyond the free slots, at least: some entries may not be able to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchInput:
    """The input of one dispatch cycle. `now` is None for the database's clock; `claim_request` is a worker's.

    `settings` are those known so far; `settings_from_rows` returns those in effect for the rows read at the
    gate. With `needs_free_slot` no entry is admitted without a free slot in a worker: it stays in the queue,
    where entries of higher priority can still overtake it.
    """

    now: datetime | None
    settings: Settings
    settings_from_rows: Callable[[dict[str, str]], Settings] | None = None
    claim_request: ClaimRequest | None = None
    needs_free_slot: bool = False
    fleets: FleetCache | None = None
    """The cache of what live workers accept; None: entries are admitted without checking for a worker."""
    memory: GateMemory | None = None
    """What this dispatcher remembers of its last visit to the gate; None: each visit reads from the start."""


@dataclass(frozen=True, slots=True)
class QueuedJobs:
    """The first entries of the queue, in order. `has_more`: there are more."""

    candidates: list[Candidate]
    has_more: bool


@dataclass(frozen=True, slots=True)
class QueueWindow:
    """The first entries of the queue that some worker can start, in order. `has_more`: there are more.

    `has_changed`: another cycle is needed, because of entries that came back to the queue (`has_unparked`) or
    were read beyond the limit.
    """

    candidates: list[Candidate]
    has_more: bool
    has_changed: bool = False
    has_unparked: bool = False
    fleet: WorkerFleet | None = None


@dataclass(frozen=True, slots=True)
class CapacityCandidates:
    """The entries to apply the limits to."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True)
class SelectedEntries:
    """The entries that fit under the limits."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchResult:
    """What one cycle did: the runs it created, in order, and `claimed`, the runs that the worker got.

    `is_limited`: some entry or run could not start for lack of capacity or slots, so dispatch again when a
    run ends; `is_out_of_slots`: the worker's slots are all in use. `run_again`: run another cycle at once.
    `next_in_seconds`: seconds until the next delayed entry may run.
    """

    metadata_ids: list[int]
    entry_ids: list[int]
    claimed: list[Claimed]
    is_limited: bool
    is_out_of_slots: bool
    run_again: bool
    next_in_seconds: float | None
    has_waiting_entries: bool = False
    """Whether entries stay in the queue that could run now if there were capacity or a free slot."""

    @property
    def has_changes(self) -> bool:
        return bool(self.metadata_ids)


@junction
def lock_and_read_gate(
    dispatch_input: DispatchInput, connection: Connection
) -> tuple[GateSnapshot, Settings]:
    """Lock the gate and read it in one round trip.

    The same trip claims pending runs for the worker, makes delayed entries ready that are due, and reads the
    settings of this cycle.
    """
    snapshot = gate.read_gate(
        connection,
        limit=_read_limit(dispatch_input),
        has_global_limit=dispatch_input.settings.max_active_jobs is not None,
        now=dispatch_input.now,
        claim_request=dispatch_input.claim_request,
        memory=dispatch_input.memory,
    )
    settings_from_rows = dispatch_input.settings_from_rows
    return snapshot, settings_from_rows(snapshot.settings) if settings_from_rows else dispatch_input.settings


@junction
def load_queued_jobs(dispatch_input: DispatchInput, snapshot: GateSnapshot, settings: Settings) -> QueuedJobs:
    """The first entries of the queue; none while the dispatcher is disabled."""
    candidates = snapshot.candidates if settings.job_dispatcher_enabled else []
    return QueuedJobs(candidates, has_more=len(candidates) == _read_limit(dispatch_input))


@junction
def park_unstartable_jobs(
    dispatch_input: DispatchInput, snapshot: GateSnapshot, queued_jobs: QueuedJobs, connection: Connection
) -> QueueWindow:
    """Park entries that no live worker accepts, and return parked ones to the queue that one accepts now."""
    candidates, has_more = queued_jobs.candidates, queued_jobs.has_more
    fleets, limit = dispatch_input.fleets, _read_limit(dispatch_input)
    if fleets is None:
        return QueueWindow(candidates, has_more)
    fleet = fleets.current(connection, snapshot.fleet_mark)
    unparked = unpark_startable(connection, fleets, fleet, now=snapshot.now) if snapshot.has_parked else 0
    startable = park_unstartable(connection, fleets, fleet, candidates, has_more=has_more, now=snapshot.now)
    has_changed = bool(unparked) or len(startable) > limit
    return QueueWindow(
        startable[:limit], has_more, has_changed=has_changed, has_unparked=bool(unparked), fleet=fleet
    )


@junction
def load_dispatch_capacity(
    dispatch_input: DispatchInput,
    snapshot: GateSnapshot,
    queue_window: QueueWindow,
    connection: Connection,
    settings: Settings,
) -> Capacity:
    """The capacity: limits, active runs and free slots. A group that waits alone needs no share."""
    active = snapshot.active
    if active is None:
        # Not counted, because there was no limit; the settings just read may have set one.
        active = {} if settings.max_active_jobs is None else gate.count_active_runs(connection)
    free_slots = _free_slots(dispatch_input, snapshot)
    capacity = build_capacity(settings, snapshot.limits, active, max_total=free_slots)
    if _is_lone_group(connection, queue_window, capacity):
        return replace(capacity, is_lone_group=True, max_per_group=None)
    return capacity


@junction
def load_past_full_groups(
    dispatch_input: DispatchInput,
    snapshot: GateSnapshot,
    queue_window: QueueWindow,
    capacity: Capacity,
    connection: Connection,
) -> CapacityCandidates:
    """The entries of the window; if full groups fill it, also the first entries of each with capacity."""
    candidates, limit = queue_window.candidates, _read_limit(dispatch_input)
    if capacity.is_lone_group or not queue_window.has_more:
        return CapacityCandidates(candidates)
    fitting = len(select_within(capacity, candidates))
    if fitting == len(candidates) or capacity.is_full(fitting):
        return CapacityCandidates(candidates)
    per_group = min(capacity.max_per_group or limit, limit)
    heads = gate.load_group_heads(
        connection, capacities=capacity.free_by_group, per_group=per_group, limit=limit
    )
    if dispatch_input.fleets is not None and queue_window.fleet is not None:
        heads = park_unstartable(
            connection, dispatch_input.fleets, queue_window.fleet, heads, has_more=False, now=snapshot.now
        )
    entries = {entry.id: entry for entry in (*candidates, *heads)}
    return CapacityCandidates(sorted(entries.values(), key=lambda entry: entry.position))


@junction
def apply_capacity_limits(capacity: Capacity, candidates: CapacityCandidates) -> SelectedEntries:
    return SelectedEntries(select_with_shares(capacity, candidates.candidates))


@junction
def dispatch_jobs(
    dispatch_input: DispatchInput,
    snapshot: GateSnapshot,
    queue_window: QueueWindow,
    capacity: Capacity,
    candidates: CapacityCandidates,
    selected: SelectedEntries,
    connection: Connection,
    settings: Settings,
    routing: Routing,
) -> DispatchResult:
    """Create runs for the selected entries, mark the entries dispatched, and commit."""
    claimed = len(snapshot.claimed)
    routing = routing if queue_window.fleet is None else add_fleet_routes(routing, queue_window.fleet)
    admissions = build_admissions(
        selected.candidates,
        routing,
        dispatch_input.claim_request,
        claimed=snapshot.claimed,
        groups=snapshot.accepted_group_ids,
        slots_elsewhere=snapshot.slots_elsewhere if dispatch_input.needs_free_slot else None,
    )
    entries = selected.candidates[: len(admissions)]
    admitted = admission.admit(connection, admissions, now=_admission_time(snapshot, entries))
    if dispatch_input.memory is not None:
        dispatched = {entry.id for entry in entries}
        bounds = gate.bounds_after(snapshot, dispatched, has_made_ready=queue_window.has_unparked)
        dispatch_input.memory.remember(bounds)
        dispatch_input.memory.allow_quick(_quick_terms(dispatch_input, snapshot, settings, routing))
    next_delayed = snapshot.next_delayed_at
    leaves_some = queue_window.has_more or len(entries) < len(candidates.candidates)
    is_full = len(entries) < len(selected.candidates) or (
        dispatch_input.claim_request is not None
        and claimed + len(admitted.claimed) >= dispatch_input.claim_request.places
    )
    entry_of = dict(zip(admitted.metadata_ids, admitted.entry_ids, strict=True))
    group_priorities = {entry.id: entry.group_priority for entry in entries}
    admitted_here = [
        run._replace(group_priority=group_priorities[entry_of[run.metadata_id]]) for run in admitted.claimed
    ]
    return DispatchResult(
        metadata_ids=admitted.metadata_ids,
        entry_ids=[entry.id for entry in entries],
        claimed=[*snapshot.claimed, *admitted_here],
        is_limited=is_full or leaves_some,
        is_out_of_slots=is_full,
        run_again=queue_window.has_changed
        or (leaves_some and any(admission.exempt for admission in admissions))  # they used no capacity
        or (
            0 < len(entries) < capacity.free_under_limit
            and (queue_window.has_more or len(entries) == capacity.max_total)
        ),
        next_in_seconds=None
        if next_delayed is None
        else max(0.0, (next_delayed - snapshot.now).total_seconds()),
        has_waiting_entries=leaves_some,
    )


def _admission_time(snapshot: GateSnapshot, entries: Sequence[Candidate]) -> datetime:
    """The time of the visit, or of a newer entry, read after the clock; none is of the far future."""
    newer = [timedelta(), *(each.created_at - snapshot.now for each in entries if each.created_at)]
    return snapshot.now + max(each for each in newer if each < timedelta(minutes=1))


job_dispatcher = train(
    "trax.job_dispatcher",
    lock_and_read_gate
    >> load_queued_jobs
    >> park_unstartable_jobs
    >> load_dispatch_capacity
    >> load_past_full_groups
    >> apply_capacity_limits
    >> dispatch_jobs,
    extra=(Connection, Routing),
    exclude_from_max_active_jobs=True,
)


def run_dispatch_cycle(
    connection: Connection,
    store: Store,
    settings: Settings,
    routing: Routing,
    *,
    settings_from_rows: Callable[[dict[str, str]], Settings] | None = None,
    claim_request: ClaimRequest | None = None,
    fleets: FleetCache | None = None,
    memory: GateMemory | None = None,
) -> DispatchResult:
    """Run one dispatch cycle, which may commit.

    With `claim_request` only as many entries are admitted as there are free slots, unless some trains go to
    other submitters or this worker accepts only some of them.
    """
    quick = bind_quick_dispatch(memory, settings, claim_request, now=store.statement_now())
    if quick is not None:
        return quick.result(commit_together(connection, *quick.statements)[-1])
    visit = DispatchInput(
        now=store.statement_now(),
        settings=settings,
        settings_from_rows=settings_from_rows,
        claim_request=claim_request,
        needs_free_slot=_needs_free_slot(claim_request, routing),
        fleets=fleets,
        memory=memory,
    )
    return job_dispatcher.run_blocking(visit, extra={Connection: connection, Routing: routing})


def _quick_terms(
    dispatch_input: DispatchInput, snapshot: GateSnapshot, settings: Settings, routing: Routing
) -> QuickTerms | None:
    """The terms for a quick next visit; None if this visit needed a decision."""
    request = dispatch_input.claim_request
    is_alone = dispatch_input.needs_free_slot and not snapshot.has_workers_elsewhere
    if request is None or not is_alone or snapshot.has_parked:
        return None
    edited, fleet = quick_gate.settings_text(snapshot.settings), snapshot.fleet_mark
    return _build_quick_terms(request, settings, routing, edited=edited, fleet=fleet)


def open_quick_dispatch(
    memory: GateMemory, opening: Opening, request: ClaimRequest, settings: Settings, routing: Routing
) -> None:
    """Allow a quick visit before any other, if no operator has edited settings and no worker is elsewhere.

    The visit itself checks the rest.
    """
    if not opening.settings and not opening.has_workers_elsewhere and _needs_free_slot(request, routing):
        terms = _build_quick_terms(request, settings, routing, edited="", fleet=opening.fleet)
        memory.allow_quick(terms)


def _build_quick_terms(
    request: ClaimRequest, settings: Settings, routing: Routing, *, edited: str, fleet: FleetMark
) -> QuickTerms | None:
    """A quick visit is for one worker with all its trains: no work filter, and no free slots in others."""
    if request.groups is not None or not settings.job_dispatcher_enabled:
        return None
    return QuickTerms(
        settings=edited,
        max_active_jobs=settings.max_active_jobs,
        max_queued_jobs_per_cycle=settings.max_queued_jobs_per_cycle,
        trains=tuple(request.trains - request.cpu_trains - routing.exempt),
        fleet=quick_gate.fleet_text(fleet),
    )


def _needs_free_slot(request: ClaimRequest | None, routing: Routing) -> bool:
    """Whether entries are admitted only for free slots: all trains run in this process or others like it."""
    return request is not None and routing.is_local and not request.has_filter


class QuickDispatch(NamedTuple):
    """A dispatch cycle in one round trip. If it needs a decision, it requests a full cycle instead."""

    visit: BoundVisit
    request: ClaimRequest
    max_active_jobs: int | None

    @property
    def statements(self) -> list[BoundStatement]:
        """One transaction."""
        return self.visit.statements

    def result(self, rows: Rows) -> DispatchResult:
        """The result of the committed cycle, from the rows of its last statement."""
        visit, limit = quick_gate.read_visit(self.visit, rows), self.max_active_jobs
        admitted = len(visit.claimed)
        is_full = admitted >= self.request.places or (visit.has_more and admitted >= self.request.slots)
        is_at_limit = limit is not None and visit.active is not None and visit.active + admitted >= limit
        return DispatchResult(
            metadata_ids=[run.metadata_id for run in visit.claimed],
            entry_ids=visit.entry_ids,
            claimed=visit.claimed,
            is_limited=is_full or visit.has_more,
            is_out_of_slots=is_full,
            run_again=not visit.is_plain or (visit.has_more and not is_at_limit),
            next_in_seconds=visit.seconds_to_next_delayed,
            has_waiting_entries=visit.has_more,
        )


def bind_quick_dispatch(
    memory: GateMemory | None,
    settings: Settings,
    claim_request: ClaimRequest | None,
    *,
    now: datetime | None,
) -> QuickDispatch | None:
    """A dispatch cycle in one round trip, if the last one has shown that it may be enough."""
    terms = None if memory is None else memory.quick_terms
    if memory is None or terms is None or claim_request is None or not claim_request.places:
        return None
    if terms.max_active_jobs != settings.max_active_jobs:
        return None
    visit = quick_gate.bind_visit(terms, memory, claim_request, now=now)
    return QuickDispatch(visit, claim_request, terms.max_active_jobs)


def build_capacity(
    settings: Settings,
    limits: Mapping[int, int],
    active: Mapping[int | None, int],
    *,
    max_total: int | None = None,
) -> Capacity:
    """The capacity from settings, group limits and the numbers of active runs."""
    return Capacity(
        limit=settings.max_active_jobs,
        active=sum(active.values()),
        limits=limits,
        active_by_group={group: count for group, count in active.items() if group is not None},
        max_per_group=settings.max_queued_jobs_per_cycle,
        max_total=max_total,
    )


def _is_lone_group(connection: Connection, window: QueueWindow, capacity: Capacity) -> bool:
    """Whether all ready entries are of one group, which has more of them than its share."""
    share = capacity.max_per_group
    groups = {entry.group_id for entry in window.candidates}
    if share is None or len(groups) != 1 or len(window.candidates) <= share:
        return False
    [group_id] = groups
    return group_id is not None and not (window.has_more and gate.has_other_entries(connection, group_id))


def _read_limit(dispatch_input: DispatchInput) -> int:
    """How many entries to read: fewer for a worker with few free slots."""
    if dispatch_input.claim_request is None or not dispatch_input.needs_free_slot:
        return MAX_ENTRIES_PER_CYCLE
    places = dispatch_input.claim_request.places
    return min(MAX_ENTRIES_FOR_WORKER, places + places // 4 + READ_MARGIN)


def _free_slots(dispatch_input: DispatchInput, snapshot: GateSnapshot) -> int | None:
    """The number of free slots in all workers; None if they do not limit this cycle."""
    if not dispatch_input.needs_free_slot or dispatch_input.claim_request is None:
        return None
    return max(0, dispatch_input.claim_request.places - len(snapshot.claimed)) + snapshot.slots_elsewhere
