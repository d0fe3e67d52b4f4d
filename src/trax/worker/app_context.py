"""`AppContext`: what resources, loops and tests of an app share: counters, telemetry, the work filter."""

from __future__ import annotations

import json
import logging
import os
import sys
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypedDict, cast

from trax.engine.live_settings import LiveSettings
from trax.engine.open_store import LazyStore
from trax.engine.parameters import Parameters
from trax.engine.submitter import LOCAL, Submitters
from trax.errors import DefinitionError, RunInterrupted, did_you_mean, format_value
from trax.events import Events
from trax.forks import fork_safe
from trax.schedule.builder import Declarations
from trax.schedule.validate import LABEL
from trax.train import Registry, Services
from trax.worker.entry import EntryWaiter
from trax.worker.heartbeat import Heartbeat, Identity
from trax.worker.hooks import Hooks
from trax.worker.run_limits import RunLimits
from trax.worker.run_log import RunLog

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from trax.engine.routing import Routing, WorkerFleet
    from trax.settings import Settings
    from trax.store import Connection, Store
    from trax.store.runs.claim import ClaimRequest
    from trax.train import Run
    from trax.worker.otel import Instruments
    from trax.worker.worker import Worker

logger = logging.getLogger(__name__)
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
class AppContext:
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
    routing_cache: RoutingCache

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
        return self.routing_cache.current(self.submitters, self.trains)

    @property
    def routes_json(self) -> str:
        """Train to submitter as JSON: other servers admit these trains because this one submits them."""
        return json.dumps(self.routing.routes)

    @property
    def plain_fields_json(self) -> str:
        """For each train the fields that cannot hold a secret, for those who enqueue without its code."""
        return json.dumps(self.parameters.plain_fields(), separators=(",", ":"))

    def own_routes(self) -> WorkerFleet:
        """The routes of this server alone."""
        from trax.engine.routing import WorkerFleet

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
            declarations=Declarations(parameters.input_writer, parameters.find_train),
            activator=ManifestActivator(store, trains, parameters, live),
            entry_waiter=EntryWaiter(store, events),
            events=events,
            identity=identity,
            heartbeat=Heartbeat(store, live, identity, name, trains),
            hooks=Hooks(parameters),
            limits=RunLimits(live),
            run_log=RunLog(live, events),
            telemetry=Telemetry(),
            counters=ProcessCounters(),
            routing_cache=RoutingCache(),
        )


class RoutingCache:
    """The last routing of an app, built again after a new train or route."""

    def __init__(self) -> None:
        self._key = (-1, -1)
        self._routing: Routing | None = None

    def current(self, submitters: Submitters, trains: Registry) -> Routing:
        key = submitters.changes, len(trains)  # trains are added, never changed or removed
        if self._routing is None or self._key != key:
            self._routing, self._key = submitters.build_routing(trains), key
        return self._routing


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
    _lock: Lock = field(default_factory=lambda: fork_safe(Lock()))
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
        ended, runs, pickup = self._ended, self._runs, self._pickup
        while ended:
            train, seconds, waited_seconds = ended.popleft()
            runs[train].add(seconds)
            if waited_seconds is not None:
                pickup.add(max(0.0, waited_seconds))


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
            f"run {run.metadata_id} has ended or was returned to the queue; nothing was activated"
        )
    now = store.now(connection)
    return trigger.activate(connection, str(run.manifest), targets, settings, force=force, now=now)


PROVIDER_VARIABLES: Final = ("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER")
"""Environment variables that make OpenTelemetry load a provider."""


class Providers(NamedTuple):
    """Where spans and measurements go."""

    tracers: TracerProvider
    meters: MeterProvider


class Telemetry:
    """Finds the providers of spans and metrics at first use, and caches the instruments.

    Without a configured provider in this process, OpenTelemetry is not imported, and `now` is None.
    """

    def __init__(self) -> None:
        self._providers: Providers | None = None

    @cached_property
    def now(self) -> Instruments | None:
        """The instruments; None without a provider. Cached, so as cheap as any attribute."""
        providers = self._providers or find_providers()
        if providers is None:
            return None
        from trax.worker.otel import instruments_of

        return instruments_of(providers)

    def reset(self) -> None:
        """Drop the cached instruments: a provider may have been configured since."""
        self.__dict__.pop("now", None)

    def add_worker(self, worker: Worker) -> None:
        """Report the load of a worker until it is removed."""
        if self.now is not None:
            self.now.workers.add(worker)

    def remove_worker(self, worker: Worker) -> None:
        if self.now is not None:
            self.now.workers.discard(worker)

    def use(self, tracers: TracerProvider, meters: MeterProvider) -> None:
        """Use these providers instead of the configured ones."""
        self._providers = Providers(tracers, meters)
        self.reset()


def find_providers() -> Providers | None:
    """The providers of this process; None if neither is configured."""
    if not _can_have_provider():
        return None
    from opentelemetry import metrics, trace

    found = Providers(trace.get_tracer_provider(), metrics.get_meter_provider())
    return found if any(map(_does_something, found)) else None


def _can_have_provider() -> bool:
    """Whether a provider is possible: the API module is imported, or an environment variable is set."""
    modules = ("opentelemetry.trace", "opentelemetry.metrics")
    return any(name in sys.modules for name in modules) or any(map(os.environ.get, PROVIDER_VARIABLES))


def _does_something(provider: object) -> bool:
    """False for the placeholders that the OpenTelemetry API defines itself."""
    module = type(provider).__module__
    return not module.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


class WorkFilterKeywords(TypedDict, total=False):
    """The trains and groups that a worker accepts; omitted or None means all."""

    trains: Iterable[str] | None
    groups: Iterable[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFilter:
    """What a worker accepts: names of trains, including aliases, and of groups. None means all."""

    trains: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    @classmethod
    def parse(cls, registry: Registry, keywords: WorkFilterKeywords) -> Self:
        """Build a filter. Raises UnknownTrain for a train that is not registered here."""
        for name in keywords.keys() - WorkFilterKeywords.__annotations__.keys():
            raise DefinitionError(
                f"unknown option {name!r}{did_you_mean(name, WorkFilterKeywords.__annotations__)}"
            )
        trains, groups = keywords.get("trains"), keywords.get("groups")
        names = (
            None if trains is None else [registry.get(name).name for name in _parse_names("trains", trains)]
        )
        return cls(
            trains=None if names is None else registry.synonyms(names),
            groups=None if groups is None else frozenset(_parse_names("groups", groups)),
        )

    @property
    def is_restricted(self) -> bool:
        """Whether the filter excludes any runs."""
        return self.trains is not None or self.groups is not None

    def worker_columns(self, context: AppContext) -> dict[str, Any]:
        """The columns of the worker's row: current train names, aliases and groups."""
        trains = [name for name in context.trains.names if self.trains is None or name in self.trains]
        groups = None if self.groups is None else json.dumps(sorted(self.groups))
        aliases = sorted(context.trains.synonyms(trains) - set(trains))
        return {
            "trains": json.dumps(trains),
            "aliases": json.dumps(aliases),
            "groups": groups,
            "plain_fields": context.plain_fields_json,
        }

    def claim_request(
        self, context: AppContext, *, worker_id: int, slots: int, cpu_slots: int
    ) -> ClaimRequest:
        """What the worker offers at a claim."""
        from trax.store.runs.claim import ClaimRequest

        trains, known, cpu = self.trains, context.trains.names_and_aliases, context.trains.cpu_names
        return ClaimRequest(
            worker_id=worker_id,
            host=context.identity.host,
            slots=slots,
            trains=known if trains is None else known & trains,
            cpu_slots=cpu_slots,
            cpu_trains=cpu if trains is None else cpu & trains,
            groups=self.groups,
            has_filter=self.is_restricted,
        )

    def warn_about_missing_groups(self, connection: Connection) -> None:
        """Log groups that do not exist: they may be created later, or be misspelt."""
        from trax.store import groups

        wanted = set(self.groups or ())
        missing = sorted(wanted - groups.load_by_names(connection, wanted).keys()) if wanted else []
        if missing:
            text = "group %s does not exist yet, but this worker accepts its runs; check the name"
            logger.warning(text, ", ".join(map(repr, missing)))


ANY_WORK: Final = WorkFilter()


def _parse_names(option: str, value: Any) -> list[str]:
    """Validate a list of names; an empty list is an error."""
    names = (
        list(cast("Iterable[Any]", value))
        if isinstance(value, Iterable) and not isinstance(value, str)
        else []
    )
    if not names or not all(map(LABEL.is_valid, names)):
        raise DefinitionError(f"{option} must be a list of at least one name (got {format_value(value)})")
    return names
