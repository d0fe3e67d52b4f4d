"""`Parts`: the components that resources, loops and tests share, and the counters of this process."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict, deque
from copy import deepcopy
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

from trax.engine.live_settings import LiveSettings
from trax.engine.open_store import LazyStore
from trax.engine.parameters import Parameters
from trax.engine.routing import LOCAL, Submitters, WorkerFleet
from trax.errors import RunInterrupted
from trax.events import Events
from trax.schedule.builder import Declarations
from trax.train import Registry, Services
from trax.worker.entry import EntryWaiter
from trax.worker.heartbeat import Heartbeat, Identity
from trax.worker.hooks import Hooks
from trax.worker.run_limits import RunLimits
from trax.worker.run_log import RunLog
from trax.worker.telemetry import Telemetry

if TYPE_CHECKING:
    from trax.engine.routing import Routing
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.train import Run


BUCKET_BOUNDS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)

"""Upper bounds of the buckets, in seconds; one more bucket has the rest."""

SLOTS: Final = 100
"""The default number of slots: an event loop carries as many runs that mostly wait."""
THREAD_SLOTS: Final = 32
"""The same for an app whose trains are all synchronous: each run needs a thread."""
COUNT_AT: Final = 1_000
"""How many ended runs are counted at once."""
MOST_REMEMBERED: Final = 10_000

"""How many manifest and reason pairs are remembered, so that each is logged once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components that resources, loops and tests share."""

    name: str
    live: LiveSettings
    store: LazyStore
    trains: Registry
    services: Services
    submitters: Submitters
    parameters: Parameters
    declarations: Declarations
    activator: ManifestActivator
    entry_waiter: EntryWaiter
    events: Events
    identity: Identity
    heartbeat: Heartbeat
    hooks: Hooks
    limits: RunLimits
    run_log: RunLog
    telemetry: Telemetry
    counters: ProcessCounters

    @property
    def settings(self) -> Settings:
        """The current settings. Read them each time: an operator may change them at any moment."""
        return self.live.current

    @property
    def slots(self) -> int:
        """How many runs this process executes at once, unless a worker was given a number of its own."""
        if self.settings.local_worker_count is not None:
            return self.settings.local_worker_count
        return THREAD_SLOTS if self.trains and all(train.is_sync for train in self.trains) else SLOTS

    @property
    def routing(self) -> Routing:
        """Which submitter each registered train goes to, for the dispatcher."""
        return self.submitters.build_routing(self.trains)

    @property
    def routes_json(self) -> str:
        """Train to submitter as JSON: other servers admit these trains because this one submits them."""
        return json.dumps(self.routing.routes)

    def own_routes(self) -> WorkerFleet:
        """The routes of this server alone."""
        routing = self.routing
        return WorkerFleet(routes=routing.routes, accepts_any=routing.default != LOCAL)

    def close(self) -> None:
        """Close the database. It is opened again on next use."""
        self.run_log.shut_down()
        self.heartbeat.close()
        self.store.close()

    @classmethod
    def build(cls, address: str, live: LiveSettings, name: str = "default") -> Self:
        trains, events = Registry(), Events()
        store, parameters = LazyStore(address, live, events), Parameters(live, trains)
        identity = Identity.detect(live.current)
        return cls(
            name=name,
            live=live,
            store=store,
            trains=trains,
            services=Services(),
            submitters=Submitters(),
            parameters=parameters,
            declarations=Declarations(parameters.input_writer),
            activator=ManifestActivator(store, trains, parameters, live),
            entry_waiter=EntryWaiter(store, events),
            events=events,
            identity=identity,
            heartbeat=Heartbeat(store, live, identity, name),
            hooks=Hooks(parameters),
            limits=RunLimits(live),
            run_log=RunLog(live, events),
            telemetry=Telemetry(),
            counters=ProcessCounters(),
        )


@dataclass(slots=True)
class SecondsHistogram:
    """A histogram of durations: counts per bucket, and their total."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class ProcessCounters:
    """Counters that only increase. Each has exactly one loop that writes it."""

    admitted: int = 0
    dead_letters: int = 0
    lost_workers: int = 0
    deferred_manifests: int = 0
    repaired_manifests: int = 0
    _runs: defaultdict[str, SecondsHistogram] = field(default_factory=lambda: defaultdict(SecondsHistogram))
    _pickup: SecondsHistogram = field(default_factory=SecondsHistogram)
    _lock: Lock = field(default_factory=Lock)
    _ended: deque[tuple[str, float, float | None]] = field(
        default_factory=deque[tuple[str, float, float | None]]
    )
    """Runs that are counted later, many at once. They may end in any thread: `app.sync.run` is blocking."""
    _deferred: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    @property
    def runs(self) -> dict[str, SecondsHistogram]:
        """Durations of the runs executed in this process, by train."""
        with self._lock:
            self._count_ended()
            return deepcopy(dict(self._runs))

    @property
    def pickup(self) -> SecondsHistogram:
        """How long dispatched runs waited for a worker of this process."""
        with self._lock:
            self._count_ended()
            return deepcopy(self._pickup)

    def count_deferred(self, manifest: str, reason: str) -> bool:
        """Count a manifest that could not be evaluated here; True the first time for this reason."""
        self.deferred_manifests += 1
        is_news = (manifest, reason) not in self._deferred
        if len(self._deferred) < MOST_REMEMBERED:
            self._deferred.add((manifest, reason))
        return is_news

    def count_run(self, train: str, seconds: float, waited_seconds: float | None = None) -> None:
        """Count a run that is over; `waited_seconds` is only given for dispatched runs."""
        self._ended.append((train, seconds, waited_seconds))
        if len(self._ended) >= COUNT_AT:
            with self._lock:
                self._count_ended()

    def _count_ended(self) -> None:
        while self._ended:
            train, seconds, waited_seconds = self._ended.popleft()
            self._runs[train].add(seconds)
            if waited_seconds is not None:
                self._pickup.add(max(0.0, waited_seconds))


class ManifestActivator:
    """Activates dormant dependents of the manifest that a run belongs to."""

    def __init__(
        self, store: LazyStore, trains: Registry, parameters: Parameters, live: LiveSettings
    ) -> None:
        self._store = store
        self._trains = trains
        self._parameters = parameters
        self._live = live

    async def __call__(self, run: Run, targets: list[tuple[str, Any]], *, force: bool) -> int:
        store = await self._store.open()
        trains = await store.ask(_train_names, [external_id for external_id, _ in targets])
        encoded = self._encode_inputs(targets, trains)
        return await store.call(_activate, store, run, encoded, self._live.current, force=force)

    def activate_blocking(self, run: Run, targets: list[tuple[str, Any]], *, force: bool) -> int:
        store = self._store.open_blocking()
        trains = store.read(_train_names, [external_id for external_id, _ in targets])
        encoded = self._encode_inputs(targets, trains)
        return store.run(_activate, store, run, encoded, self._live.current, force=force)

    def _encode_inputs(self, targets: list[tuple[str, Any]], trains: dict[str, str]) -> list[tuple[str, str]]:
        """Validate and encode before the transaction begins: validators are user code and may be slow."""
        return [
            (external_id, self._encode_input(trains.get(external_id), value))
            for external_id, value in targets
        ]

    def _encode_input(self, train: str | None, value: Any) -> str:
        if train is None:
            return "null"  # unknown manifest: rejected later, in the transaction
        return self._parameters.input_writer(self._trains.get(train)).encode(value)


def _train_names(connection: Connection, external_ids: list[str]) -> dict[str, str]:
    from trax.store.manifests.manifest_rows import load_targets

    return {name: row.train for name, row in load_targets(connection, external_ids).items()}


def _activate(
    connection: Connection,
    store: Store,
    run: Run,
    targets: list[tuple[str, str]],
    settings: Settings,
    *,
    force: bool,
) -> int:
    from trax.engine import trigger
    from trax.store.runs import metadata

    if not metadata.is_in_progress(connection, run.metadata_id):
        raise RunInterrupted(
            f"run {run.metadata_id} is no longer in progress (put back or ended); nothing was activated"
        )
    now = store.now(connection)
    return trigger.activate(connection, str(run.manifest), targets, settings, force=force, now=now)
