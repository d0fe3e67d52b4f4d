"""The JobDispatcher: the one gate. It alone reads the work queue and enforces the limits, exactly.

One cycle is one short transaction under the gate lock: what is counted there is what is there, however many
servers run. Handing over to slow submitters happens after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from trax.dispatch.capacity import Capacity, select_within
from trax.dispatch.routing import Routing
from trax.settings import Settings
from trax.store import Connection, admission, dialect
from trax.store.admission import Admission, Candidate
from trax.train import junction, train

if TYPE_CHECKING:
    from trax.store import Store

AT_ONCE: Final = 500
"""How many entries one cycle lets through at the most; a longer queue is taken cycle by cycle."""


@dataclass(frozen=True, slots=True)
class Window:
    """The first entries in order. `is_cut` says that more of them wait."""

    candidates: list[Candidate]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Contenders:
    """The entries that capacity is applied to."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True)
class Selected:
    """The entries that fit."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """What one cycle did: the runs it made, in order. `more` asks for another cycle at once."""

    metadata_ids: list[int]
    entry_ids: list[int]
    refused: bool
    more: bool

    @property
    def changed(self) -> bool:
        return bool(self.metadata_ids)


@junction
def load_queued_jobs(connection: Connection, now: datetime) -> Window:
    """Promote what waited for a moment that has come, and read the head of the queue."""
    admission.promote(connection, now=now)
    candidates = admission.first(connection, limit=AT_ONCE)
    return Window(candidates, is_cut=len(candidates) == AT_ONCE)


@junction
def load_dispatch_capacity(
    window: Window, connection: Connection, settings: Settings
) -> tuple[Capacity, Contenders]:
    """Count what runs, only if there is someone to let in; look past full groups if they fill the window."""
    if not window.candidates:
        return Capacity(limit=settings.max_active_jobs), Contenders([])
    limits = admission.bounds(connection)
    is_bound = settings.max_active_jobs is not None or bool(limits)
    active = admission.occupancy(connection) if is_bound else {}
    capacity = Capacity(
        limit=settings.max_active_jobs,
        active=sum(active.values()),
        limits=limits,
        active_by_group={group: count for group, count in active.items() if group is not None},
        share=settings.max_queued_jobs_per_cycle,
    )
    return capacity, Contenders(_contenders(connection, window, capacity))


@junction
def apply_capacity_limits(capacity: Capacity, contenders: Contenders) -> Selected:
    return Selected(select_within(capacity, contenders.candidates))


@junction
def dispatch_jobs(
    window: Window,
    contenders: Contenders,
    selected: Selected,
    connection: Connection,
    routing: Routing,
    now: datetime,
) -> Dispatched:
    """Make the runs of what fits, and mark its entries."""
    admissions = [
        Admission(entry.id, routing.submitter_of(entry.train), entry.train in routing.exempt)
        for entry in selected.candidates
    ]
    return Dispatched(
        metadata_ids=admission.admit(connection, admissions, now=now),
        entry_ids=[entry.id for entry in selected.candidates],
        refused=len(selected.candidates) < len(contenders.candidates),
        more=window.is_cut and bool(selected.candidates),
    )


job_dispatcher = train(
    "trax.job_dispatcher",
    load_queued_jobs >> load_dispatch_capacity >> apply_capacity_limits >> dispatch_jobs,
    extra=(Settings, Routing, datetime),
    exclude_from_max_active_jobs=True,
)


def dispatch(connection: Connection, store: Store, settings: Settings, routing: Routing) -> Dispatched:
    """One cycle. The clock is read once the lock is held, so that moments of admission are in order."""
    dialect.take_gate_lock(connection)
    extra = {Settings: settings, Routing: routing, datetime: store.now(connection)}
    return job_dispatcher.run_blocking(connection, extra=extra)


def _contenders(connection: Connection, window: Window, capacity: Capacity) -> list[Candidate]:
    """The window itself, unless entries that may not start fill it and hide others that might."""
    selected = select_within(capacity, window.candidates)
    hides_others = window.is_cut and len(selected) < len(window.candidates)
    if not hides_others or capacity.is_full(len(selected)):
        return window.candidates
    share = capacity.share or AT_ONCE
    return admission.heads(connection, rooms=capacity.rooms, per_group=min(share, AT_ONCE), limit=AT_ONCE)
