"""Where a job can run: the routes of trains, what live workers accept, and parking what none of them accepts.

`build_admissions` assigns the entries of one visit to the worker at the gate, to others, or to a submitter.

A parked entry uses no capacity. The dispatcher parks and unparks; an entry parked for too long becomes a dead
letter. A pending run whose last possible worker is gone goes back to the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from trax.clock import format_duration
from trax.engine.submitter import LOCAL
from trax.errors import did_you_mean
from trax.events import Topic
from trax.records.work_queue_entry import PARKING_SEPARATOR
from trax.store import dead_letters, gate, workers
from trax.store.admission import Admission
from trax.store.announce import announce
from trax.store.queue import parking, requeue
from trax.store.runs import hand_over
from trax.store.types import parse_mapping, parse_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from trax.settings import Settings
    from trax.store import Connection
    from trax.store.gate_memory import Candidate
    from trax.store.runs.claim import Claimed, ClaimRequest
    from trax.store.workers import FleetMark

logger = logging.getLogger(__name__)
BATCH_SIZE: Final = 5_000
"""The maximum number of entries that one dispatch cycle parks or unparks."""
PARKED_CHECK_INTERVAL: Final = timedelta(seconds=2)
"""How often parked entries are checked although the workers have not changed: a group may be new."""
SWEEP_INTERVAL: Final = timedelta(seconds=5)
"""How often the manager searches for jobs that no worker accepts; not in every cycle, to save work."""
WARNING_INTERVAL: Final = timedelta(minutes=1)
MAX_WARNINGS: Final = 10
"""How many missing trains are named in the log in each interval."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of trains, by name: an entry may be for a train that only another server has."""

    submitters: Mapping[str, str] = field(default_factory=dict[str, str])
    exempt: frozenset[str] = frozenset()
    default: str = LOCAL
    known: frozenset[str] = frozenset()
    """The names and aliases of all trains in this server's code."""

    @property
    def is_local(self) -> bool:
        """Whether all trains run on Trax's own workers."""
        return self.default == LOCAL and all(name == LOCAL for name in self.submitters.values())

    @property
    def routes(self) -> dict[str, str]:
        """The trains of this server's code that do not run on Trax's own workers, with their submitters."""
        submitters = {train: self.submitter_of(train) for train in self.known}
        return {train: to for train, to in submitters.items() if to != LOCAL}

    def extend(self, submitters: Mapping[str, str]) -> Routing:
        """A copy with more routes; existing routes win."""
        return replace(self, submitters={**submitters, **self.submitters})

    def submitter_of(self, train: str) -> str:
        return self.submitters.get(train, self.default)


class AcceptedWork(NamedTuple):
    """The trains (with aliases) and the groups that one worker accepts; None: all groups."""

    trains: frozenset[str]
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFleet:
    """What all live workers accept, and the submitter of each train that other servers route."""

    workers: tuple[AcceptedWork, ...] = ()
    routes: Mapping[str, str] = field(default_factory=dict[str, str])
    accepts_any: bool = False
    """Whether the default submitter is not local: then every train without a route can start."""

    @property
    def is_empty(self) -> bool:
        """Whether no train can start anywhere."""
        return not (self.workers or self.routes or self.accepts_any)

    @property
    def is_by_group(self) -> bool:
        """Whether some worker accepts only some groups."""
        return any(worker.groups is not None for worker in self.workers)

    @property
    def trains(self) -> frozenset[str]:
        """Every train that a worker or a submitter can start."""
        return frozenset(self.routes).union(*(worker.trains for worker in self.workers))

    def merge(self, other: WorkerFleet) -> WorkerFleet:
        return WorkerFleet(
            workers=(*self.workers, *other.workers),
            routes={**other.routes, **self.routes},
            accepts_any=self.accepts_any or other.accepts_any,
        )

    def can_start(self, train: str, group: str | None) -> bool:
        if self.accepts_any or train in self.routes:
            return True
        return any(
            train in worker.trains and (worker.groups is None or group in worker.groups)
            for worker in self.workers
        )

    def parking_key(self, train: str, group: str | None) -> str:
        """The key of a parked entry: its train, or its train and group if a worker accepts the train."""
        is_known = any(train in worker.trains for worker in self.workers)
        return f"{train}{PARKING_SEPARATOR}{group or ''}" if is_known else train

    def is_available(self, key: str) -> bool:
        """Whether a worker or submitter for this parking key exists now."""
        train, separator, group = key.partition(PARKING_SEPARATOR)
        if separator:
            return self.can_start(train, group or None)
        return self.accepts_any or train in self.trains

    def describe_missing(self, key: str) -> str:
        """Say what is missing for this parking key, with the most similar known train."""
        train, separator, group = key.partition(PARKING_SEPARATOR)
        if separator:
            what = f"in group {group!r}" if group else "outside its own groups"
            return f"no live worker accepts train {train!r} {what}"
        return f"no live worker accepts train {train!r}{did_you_mean(train, self.trains)}"


def add_fleet_routes(routing: Routing, fleet: WorkerFleet) -> Routing:
    """Add the routes of other servers for trains that this server's code does not have."""
    elsewhere = {train: to for train, to in fleet.routes.items() if train not in routing.known}
    return routing.extend(elsewhere) if elsewhere else routing


class FleetCache:
    """A cache of the fleet, read again when a worker has registered or left.

    `extra_fleet` returns workers that have no rows, for tests: they register a worker only while it runs.
    """

    def __init__(self, extra_fleet: Callable[[], WorkerFleet] | None = None) -> None:
        self._extra_fleet = extra_fleet
        self._mark: FleetMark | None = None
        self._fleet = WorkerFleet()
        self.workers = 0
        """How many workers and schedulers there were at that time."""
        self._group_names: dict[int, str] = {}
        self._parked_checked_at: datetime | None = None
        self._checked_at: datetime | None = None
        self._warned: set[str] = set()
        self._warned_at: datetime | None = None
        self._warnings_left = 0

    @property
    def is_single(self) -> bool:
        """Whether there was only one worker or scheduler when the fleet was last read or counted."""
        return self.workers == 1

    def current(self, connection: Connection, mark: FleetMark) -> WorkerFleet:
        if mark != self._mark:
            self._fleet, self._mark, self._parked_checked_at = load_fleet(connection), mark, None
            self.workers = mark.workers
        return self._fleet if self._extra_fleet is None else self._extra_fleet().merge(self._fleet)

    def load(self, connection: Connection) -> WorkerFleet:
        """Read the fleet from the database, without the cache."""
        fleet = load_fleet(connection)
        return fleet if self._extra_fleet is None else self._extra_fleet().merge(fleet)

    def group_names(self, connection: Connection, entries: Sequence[Candidate]) -> dict[int, str]:
        """The names of these entries' groups, by id. A group never changes its name, so each is read once."""
        ids = {entry.group_id for entry in entries if entry.group_id is not None}
        unknown = ids - self._group_names.keys()
        if unknown:
            self._group_names |= parking.group_names(connection, unknown)
        return self._group_names

    def is_parked_check_due(self, now: datetime) -> bool:
        """Whether to check parked entries now: after a change of workers, or every PARKED_CHECK_INTERVAL."""
        if _is_recent(self._parked_checked_at, PARKED_CHECK_INTERVAL, now):
            return False
        self._parked_checked_at = now
        return True

    def is_sweep_due(self, now: datetime) -> bool:
        """Whether to search now for entries parked too long and for runs that no worker accepts."""
        if _is_recent(self._checked_at, SWEEP_INTERVAL, now):
            return False
        self._checked_at = now
        return True

    def warn_missing(self, fleet: WorkerFleet, keys: set[str], *, now: datetime) -> None:
        """Log each missing train or group once, and again if it disappears a second time.

        Whoever enqueues makes up names, so only some a minute have a line of their own.
        """
        missing = sorted(keys - self._warned)
        if not missing:
            return
        if not _is_recent(self._warned_at, WARNING_INTERVAL, now):
            self._warned_at, self._warnings_left = now, MAX_WARNINGS
        for key in missing[: self._warnings_left]:
            text = "train %r: %s; its entries are parked until a worker that accepts them registers"
            train = parking.train_of(key)
            logger.warning(text, train, fleet.describe_missing(key), extra={"train": train})
        rest = len(missing) - self._warnings_left
        if rest > 0 and self._warnings_left:
            text = "workers: no live worker accepts %s more trains; their entries are parked"
            logger.warning(text, rest)
        self._warnings_left = max(0, -rest)
        self._warned = (self._warned if len(self._warned) < parking.KEYS_AT_MOST else set[str]()) | keys

    def note_available(self, keys: set[str]) -> None:
        self._warned -= keys


def load_fleet(connection: Connection) -> WorkerFleet:
    """Read what live workers accept and what servers route."""
    rows = workers.load_fleet(connection)
    return WorkerFleet(
        workers=tuple(
            AcceptedWork(
                frozenset((*parse_names(row.trains), *parse_names(row.aliases))),
                None if row.groups is None else frozenset(parse_names(row.groups)),
            )
            for row in rows
            if row.kind == "worker"
        ),
        routes={train: to for row in rows for train, to in parse_mapping(row.routes).items()},
    )


def park_unstartable(
    connection: Connection,
    fleets: FleetCache,
    fleet: WorkerFleet,
    candidates: list[Candidate],
    *,
    has_more: bool,
    now: datetime,
) -> list[Candidate]:
    """Park the entries that no worker or submitter can start; returns the others.

    If the window was cut, more entries are read, so that a flood is parked in a few cycles. Without any
    worker or submitter nothing is parked: there is nothing that these entries could block.
    """
    startable = _select_startable(connection, fleets, fleet, candidates)
    if len(startable) == len(candidates):
        return candidates
    if fleet.is_empty:
        return []
    if has_more:
        candidates = gate.load_first(connection, limit=BATCH_SIZE)
        startable = _select_startable(connection, fleets, fleet, candidates)
    names = fleets.group_names(connection, candidates)
    startable_ids = {entry.id for entry in startable}
    keys = {
        entry.id: fleet.parking_key(entry.train, names.get(entry.group_id or 0))
        for entry in candidates
        if entry.id not in startable_ids
    }
    for entry_id, error in parking.park(connection, keys, now=now).items():
        text = "entry %s was cancelled: it cannot be parked: %s"
        logger.warning(text, entry_id, error, extra={"entry_id": entry_id})
    fleets.warn_missing(fleet, set(keys.values()), now=now)
    return startable


def unpark_startable(connection: Connection, fleets: FleetCache, fleet: WorkerFleet, *, now: datetime) -> int:
    """Return parked entries to the queue that a worker now accepts; returns how many."""
    if fleet.is_empty or not fleets.is_parked_check_due(now):
        return 0
    available = {key for key in parking.keys(connection) if fleet.is_available(key)}
    if not available:
        return 0
    fleets.note_available(available)
    return parking.unpark(connection, available, limit=BATCH_SIZE)


def expire_parked(
    connection: Connection, fleet: WorkerFleet, settings: Settings, *, now: datetime
) -> list[int]:
    """Write dead letters for entries that were parked for too long; returns the entries' ids."""
    timeout = settings.unknown_train_timeout or settings.stale_pending_timeout
    late = parking.expire(connection, parked_before=now - timeout)
    waited = format_duration(timeout)
    reasons = {
        entry.id: f"{fleet.describe_missing(entry.parked)}; it was parked for {waited} and never ran"
        for entry in late
    }
    alone = [
        dead_letters.build_from_entry(entry, reasons[entry.id], retry_count=0)
        for entry in late
        if entry.manifest_id is None
    ]
    dead_letters.add(connection, alone, now=now)
    of_manifests = {
        entry.manifest_id: (reasons[entry.id], None) for entry in late if entry.manifest_id is not None
    }
    if of_manifests:
        hand_over.give_up_manifests(connection, of_manifests, now=now)
        announce(connection, Topic.MANIFEST)
    for entry in late:
        extra = {"entry_id": entry.id, "train": entry.train}
        logger.warning("entry %s became a dead letter: %s", entry.id, reasons[entry.id], extra=extra)
    if late:
        announce(connection, Topic.FINISHED)
    return [entry.id for entry in late]


def requeue_runs_without_worker(
    connection: Connection, fleet: WorkerFleet, settings: Settings, *, now: datetime
) -> list[int]:
    """Return pending runs to the queue that no live worker accepts any more; returns their ids."""
    if fleet.is_empty:
        return []
    pending = parking.load_unclaimed(connection, created_before=now - settings.worker_lost_after)
    ids = [run.id for run in pending if not fleet.can_start(run.train, run.group)]
    if not ids:
        return []
    reason = "no live worker accepts it any more; it was returned to the queue"
    cancelled = parking.cancel_unclaimed(connection, ids, reason=reason, now=now)
    requeue.put_back(connection, dict.fromkeys(cancelled), attempts=0)
    logger.warning("runs %s were returned to the queue: no live worker accepts them any more", ids)
    return ids


def _is_recent(moment: datetime | None, period: timedelta, now: datetime) -> bool:
    return moment is not None and timedelta() <= now - moment < period


def _select_startable(
    connection: Connection, fleets: FleetCache, fleet: WorkerFleet, candidates: list[Candidate]
) -> list[Candidate]:
    if fleet.accepts_any:
        return candidates
    if not fleet.is_by_group:
        trains = fleet.trains
        return [entry for entry in candidates if entry.train in trains]
    names = fleets.group_names(connection, candidates)
    return [entry for entry in candidates if fleet.can_start(entry.train, names.get(entry.group_id or 0))]


def build_admissions(
    entries: Sequence[Candidate],
    routing: Routing,
    claim_request: ClaimRequest | None,
    *,
    claimed: Sequence[Claimed] = (),
    groups: frozenset[int] | None = None,
    slots_elsewhere: int | None = None,
) -> list[Admission]:
    """Assign entries to the worker, in order, until its slots are full; `claimed` are runs it has already.

    Any worker may claim the entries that are not assigned. With `slots_elsewhere` these are as many as that;
    then the worker gets those that may wait for a slot, and the list ends before an entry that may not. With
    `groups` it gets only entries of these groups.
    """
    free = max(0, claim_request.slots - len(claimed)) if claim_request else 0
    ahead = claim_request.ahead if claim_request else 0
    cpu_free = (
        claim_request.cpu_slots - sum(run.train in claim_request.cpu_trains for run in claimed)
        if claim_request
        else 0
    )
    kinds: dict[str, _TrainPlacement] = {}
    placements: list[Admission] = []
    for entry in entries:
        kind = kinds.get(entry.train) or kinds.setdefault(
            entry.train, _train_placement(entry.train, routing, claim_request)
        )
        worker_id, host, starts = None, None, False
        is_wanted = kind.fits_worker and (groups is None or entry.group_id in groups)
        if is_wanted and free > 0 and (not kind.is_cpu or cpu_free > 0):
            free, cpu_free, starts = free - 1, cpu_free - kind.is_cpu, True
        elif slots_elsewhere or not is_wanted or kind.is_cpu:
            slots_elsewhere, is_wanted = slots_elsewhere and slots_elsewhere - 1, False
        elif ahead > 0 and entry.may_wait:
            ahead -= 1
        elif slots_elsewhere is None:
            is_wanted = False
        else:
            break
        if is_wanted and claim_request is not None:
            worker_id, host = claim_request.worker_id, claim_request.host
        from_dead_letter = entry.dead_letter_id is not None
        placements.append(
            Admission(entry.id, kind.submitter, kind.exempt, worker_id, host, starts, from_dead_letter)
        )
    return placements


class _TrainPlacement(NamedTuple):
    """What all entries of a train have in common. `fits_worker`: the worker could run them."""

    submitter: str
    exempt: bool
    fits_worker: bool
    is_cpu: bool


def _train_placement(train: str, routing: Routing, claim_request: ClaimRequest | None) -> _TrainPlacement:
    submitter = routing.submitter_of(train)
    fits_worker = claim_request is not None and submitter == LOCAL and train in claim_request.trains
    is_cpu = claim_request is not None and train in claim_request.cpu_trains
    return _TrainPlacement(submitter, train in routing.exempt, fits_worker, is_cpu)
