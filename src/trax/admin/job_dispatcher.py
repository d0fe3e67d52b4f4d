"""The JobDispatcher: the one gate. It alone reads the work queue and enforces the limits, exactly.

One cycle is one short transaction under the gate lock: what is counted there is what is there, however many
servers run. It takes two trips to the database: one for the lock and everything that is read, one for what is
written and the commit. Handing over to slow submitters happens after that.

A worker of the same process may come along to the gate. Then it takes pending runs into its free slots, and
what is let in for it begins at once, without being pending in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from trax.admin.parking import Fleets, keep_startable, take_back
from trax.dispatch.capacity import Capacity, select_within
from trax.dispatch.fleet import Fleet, with_routes
from trax.dispatch.placing import placed
from trax.dispatch.routing import Routing
from trax.settings import Settings
from trax.store import Connection, admission, gate
from trax.store.claim import Claimed, Taker
from trax.store.gate import Candidate, Sight
from trax.train import junction, train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trax.store import Store

AT_ONCE: Final = 500
"""How many entries one cycle lets through; a longer queue is taken cycle by cycle."""

MOST_AT_ONCE: Final = 1_000
"""The same for a worker that comes along with as many slots: the more it takes, the less each costs."""

MARGIN: Final = 50
"""How far to read past the entries there are slots for, at the least: some of them may not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One visit to the gate: when, unless the database is to say so, and with which worker, if any.

    `settings` are those known so far; `accept` makes of the rows found at the gate those that count. With
    `waits_for_slots` nobody is let in whom no worker has a slot for: until then it keeps its place in the
    queue, where whoever is more urgent still overtakes it.
    """

    now: datetime | None
    settings: Settings
    accept: Callable[[dict[str, str]], Settings] | None = None
    taker: Taker | None = None
    waits_for_slots: bool = False
    fleets: Fleets | None = None
    """Who could start what; None: everything that fits is let in, whoever may take it."""


@dataclass(frozen=True, slots=True)
class Window:
    """The first entries in order. `is_cut` says that more of them wait.

    `has_changed` says that the queue is another one after this look: entries have come back into it.
    """

    candidates: list[Candidate]
    is_cut: bool
    has_changed: bool = False
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class Contenders:
    """The entries that capacity is applied to, and those that fit where that is known already."""

    candidates: list[Candidate]
    fitting: list[Candidate] | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """The entries that fit."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What one cycle did: the runs it made, in order, and those the worker that came along now holds.

    `refused` says that someone was not let in, or not taken, who should be once a run has ended; with
    `awaits_slots` a slot of the worker is all it takes. `leaves_some` says that entries stay behind. `more`
    asks for another cycle at once; `next_in` is how many seconds pass until a delayed entry may run.
    """

    metadata_ids: list[int]
    entry_ids: list[int]
    held: list[Claimed]
    refused: bool
    awaits_slots: bool
    more: bool
    next_in: float | None
    leaves_some: bool = False
    """Whether somebody stays in the queue who could run now, if there was a place or a slot somewhere."""

    @property
    def changed(self) -> bool:
        return bool(self.metadata_ids)


@junction
def load_queued_jobs(visit: Visit, connection: Connection) -> tuple[Sight, Settings, Window]:
    """Promote what waited for a moment that has come, and read the head of the queue."""
    most = _reach(visit)
    is_bound = visit.settings.max_active_jobs is not None
    sight = gate.look(connection, most=most, is_bound=is_bound, now=visit.now, taker=visit.taker)
    settings = visit.accept(sight.settings) if visit.accept else visit.settings
    candidates = sight.candidates if settings.job_dispatcher_enabled else []
    is_cut = len(candidates) == most
    if visit.fleets is None:
        return sight, settings, Window(candidates, is_cut)
    fleets, fleet = visit.fleets, visit.fleets.now(connection, sight.fleet_mark)
    back = take_back(connection, fleets, fleet, now=sight.now) if sight.has_parked else 0
    startable = keep_startable(connection, fleets, fleet, candidates, is_cut=is_cut, now=sight.now)
    has_changed = bool(back) or len(startable) > most
    return sight, settings, Window(startable[:most], is_cut, has_changed=has_changed, fleet=fleet)


@junction
def load_dispatch_capacity(
    visit: Visit, sight: Sight, window: Window, connection: Connection, settings: Settings
) -> tuple[Capacity, Contenders]:
    """Hold what runs against the limits; look past full groups if their entries fill the window."""
    active = sight.active
    if active is None:
        # Not counted, since there was no limit; the settings read at the gate may just have brought one.
        active = {} if settings.max_active_jobs is None else gate.occupancy(connection)
    capacity = capacity_under(settings, sight.limits, active, most=_slots(visit, sight))
    contenders = _contenders(connection, window, capacity, most=_reach(visit))
    if visit.fleets is None or contenders.candidates is window.candidates:
        return capacity, contenders
    fleet, heads = visit.fleets.now(connection, sight.fleet_mark), contenders.candidates
    heads = keep_startable(connection, visit.fleets, fleet, heads, is_cut=False, now=sight.now)
    return capacity, Contenders(heads)


@junction
def apply_capacity_limits(capacity: Capacity, contenders: Contenders) -> Selected:
    fitting = contenders.fitting
    return Selected(select_within(capacity, contenders.candidates) if fitting is None else fitting)


@junction
def dispatch_jobs(
    visit: Visit,
    sight: Sight,
    window: Window,
    capacity: Capacity,
    contenders: Contenders,
    selected: Selected,
    connection: Connection,
    routing: Routing,
) -> Dispatched:
    """Make the runs of what fits, mark its entries, and commit."""
    entries, taken = selected.candidates, len(sight.claimed)
    routing = routing if window.fleet is None else with_routes(routing, window.fleet)
    placements = placed(entries, routing, visit.taker, taken=sight.claimed, groups=sight.taken_groups)
    admitted = admission.admit(connection, placements, now=sight.now)
    next_moment = sight.next_moment
    leaves_some = window.is_cut or len(entries) < len(contenders.candidates)
    is_full = visit.taker is not None and taken + len(admitted.held) >= visit.taker.slots
    return Dispatched(
        metadata_ids=admitted.metadata_ids,
        entry_ids=[entry.id for entry in entries],
        held=[*sight.claimed, *admitted.held],
        refused=is_full or leaves_some,
        awaits_slots=is_full,
        more=window.has_changed or (bool(entries) and (window.is_cut or len(entries) == capacity.most)),
        next_in=None if next_moment is None else max(0.0, (next_moment - sight.now).total_seconds()),
        leaves_some=leaves_some,
    )


job_dispatcher = train(
    "trax.job_dispatcher",
    load_queued_jobs >> load_dispatch_capacity >> apply_capacity_limits >> dispatch_jobs,
    extra=(Connection, Routing),
    exclude_from_max_active_jobs=True,
)


def dispatch(
    connection: Connection,
    store: Store,
    settings: Settings,
    routing: Routing,
    *,
    accept: Callable[[dict[str, str]], Settings] | None = None,
    taker: Taker | None = None,
    fleets: Fleets | None = None,
) -> Dispatched:
    """One cycle, which may end the transaction.

    With a worker at hand it lets in only what there are slots for, unless some go elsewhere than to workers,
    or to others than this one.
    """
    visit = Visit(
        now=store.given_now(connection),
        settings=settings,
        accept=accept,
        taker=taker,
        waits_for_slots=taker is not None and routing.is_local and not taker.is_picky,
        fleets=fleets,
    )
    return job_dispatcher.run_blocking(visit, extra={Connection: connection, Routing: routing})


def capacity_under(
    settings: Settings,
    limits: Mapping[int, int],
    active: Mapping[int | None, int],
    *,
    most: int | None = None,
) -> Capacity:
    """What may run, beside what runs."""
    return Capacity(
        limit=settings.max_active_jobs,
        active=sum(active.values()),
        limits=limits,
        active_by_group={group: count for group, count in active.items() if group is not None},
        share=settings.max_queued_jobs_per_cycle,
        most=most,
    )


def _reach(visit: Visit) -> int:
    """How far to read: for a few slots not all that one cycle could take."""
    if visit.taker is None or not visit.waits_for_slots:
        return AT_ONCE
    slots = visit.taker.slots
    return min(MOST_AT_ONCE, slots + slots // 4 + MARGIN)


def _slots(visit: Visit, sight: Sight) -> int | None:
    """How many could be run by someone if they were let in now."""
    if not visit.waits_for_slots or visit.taker is None:
        return None
    return max(0, visit.taker.slots - len(sight.claimed)) + sight.room_elsewhere


def _contenders(connection: Connection, window: Window, capacity: Capacity, *, most: int) -> Contenders:
    """The window itself, unless entries that may not start fill it and hide others that might."""
    if not window.is_cut:
        return Contenders(window.candidates)
    fitting = select_within(capacity, window.candidates)
    if len(fitting) == len(window.candidates) or capacity.is_full(len(fitting)):
        return Contenders(window.candidates, fitting)
    share = capacity.share or most
    heads = gate.heads(connection, rooms=capacity.rooms, per_group=min(share, most), limit=most)
    return Contenders(heads)
