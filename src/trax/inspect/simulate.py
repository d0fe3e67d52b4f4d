"""Simulate the declared manifests of an app from a seed: when their runs start and end (`trax simulate`).

The real engine decides, on a database in memory (`simulation.py`); durations are drawn from the history of
the trains. The app's own database is only read, and no code of a train is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from trax.clock import utc_now
from trax.engine.live_settings import LiveSettings
from trax.engine.submitter import LOCAL, Submitters
from trax.errors import DefinitionError, did_you_mean
from trax.inspect.simulation import DrawnJob, Simulation
from trax.inspect.virtual_server import VirtualServer
from trax.records.manifest import ManifestGroup
from trax.settings import Settings
from trax.store import dead_letters, stats
from trax.store import groups as stored_groups
from trax.store import settings as stored_settings
from trax.store.manifests import manifest_rows
from trax.store.migrations import ensure_current, status
from trax.store.runs.run_lists import TimedRun, load_timed_runs
from trax.worker.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trax.engine.routing import Routing
    from trax.schedule.declaration import Timetable
    from trax.store import Connection, Store
    from trax.store.runs.claim import Claimed
    from trax.train import Train
    from trax.worker.app_context import AppContext

DEFAULT_SECONDS: Final = 60.0
"""The duration of a run if its train has no history and no duration was given."""
HISTORY: Final = timedelta(days=30)
RESOLUTIONS: Final = (
    (timedelta(days=2), timedelta(seconds=1)),
    (timedelta(days=10), timedelta(seconds=10)),
    (timedelta.max, timedelta(seconds=30)),
)
"""The resolution by length of the simulation: rounded times let simultaneous events share a transaction."""
MOMENT: Final = timedelta(microseconds=1)
STEPS: Final = 200
"""How often the progress is reported."""
QUIET: Final = {
    "worker_lost_after": timedelta(days=1),
    "heartbeat_interval": timedelta(hours=1),
    "manifest_manager_polling_interval": timedelta(days=1),
    "job_dispatcher_polling_interval": timedelta(days=1),
    "local_polling_interval": timedelta(days=1),
}
"""A simulation loses no worker and no notification: heartbeats and polls would only take time."""


@dataclass(frozen=True, slots=True)
class TrainModel:
    """What the runs of a train do: each takes one of these durations, and this share of them fails."""

    seconds: tuple[float, ...] = (DEFAULT_SECONDS,)
    failure_rate: float = 0.0
    source: Literal["history", "given", "default"] = "default"

    def draw(self, random: Random) -> DrawnJob:
        seconds = random.choice(self.seconds)
        return DrawnJob(seconds, SimulatedFailure() if random.random() < self.failure_rate else None)


class SimulatedFailure(RuntimeError):
    """Raised by a simulated run that fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What to simulate. Settings and limits that are not changed are those in force.

    `durations` in seconds and `failures` as shares replace the history of a train; `groups` sets limits.
    """

    start: datetime | None = None
    days: float = 1.0
    seed: int = 1
    servers: int = 1
    slots: int | None = None
    durations: Mapping[str, float] = field(default_factory=dict[str, float])
    failures: Mapping[str, float] = field(default_factory=dict[str, float])
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    groups: Mapping[str, int | None] = field(default_factory=dict[str, "int | None"])
    resolution: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The simulated runs in the order of their start, and the other data that the figures need."""

    start: datetime
    end: datetime
    seed: int
    servers: int
    slots: int
    resolution: timedelta
    max_active_jobs: int | None
    runs: tuple[TimedRun, ...]
    manifests: tuple[str, ...]
    """In the order of their declaration: parents before children."""
    parents: Mapping[str, str]
    group_of: Mapping[str, str]
    limits: Mapping[str, int | None]
    dead_letters: Mapping[str, int]
    trains: Mapping[str, TrainModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """Data from the app's database: operators' edits, and the history of the trains."""

    now: datetime
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict[str, ManifestGroup])
    disabled: frozenset[str] = frozenset()
    models: Mapping[str, TrainModel] = field(default_factory=dict[str, TrainModel])


def forecast(
    context: AppContext,
    scenario: Scenario,
    *,
    facts: StoredFacts | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> Forecast:
    """Simulate the manifests of an app. The same scenario and facts always give the same forecast.

    `facts` are read from the app's database, unless they are given; `on_progress` gets the finished share.
    """
    return _Forecaster(context, scenario, facts or load_facts(context)).run(on_progress or (lambda _: None))


def load_facts(context: AppContext) -> StoredFacts:
    """Read the facts from the app's database; without a database or tables there are none."""
    store = context.store.build_store_as_is()
    if store is None:
        return StoredFacts(now=utc_now())
    try:
        return store.read(_load_facts, store, context)
    finally:
        store.close()


def _load_facts(connection: Connection, store: Store, context: AppContext) -> StoredFacts:
    now, timetable = store.now(connection), context.declarations.timetable()
    if status(connection).state == "missing":
        return StoredFacts(now=now)
    ensure_current(connection)
    names = [each.external_id for each in timetable.manifests]
    manifests = manifest_rows.load_by_names(connection, names, brief=True)
    return StoredFacts(
        now=now,
        settings=stored_settings.load_edited(connection),
        groups=stored_groups.load_by_names(connection, {group.name for group in timetable.groups}),
        disabled=frozenset(each.external_id for each in manifests if not each.enabled),
        models=_load_models(connection, context.trains.names, since=now - HISTORY),
    )


def _load_models(connection: Connection, trains: list[str], *, since: datetime) -> dict[str, TrainModel]:
    durations = stats.latest_durations(connection, trains, since=since)
    failures = stats.latest_failures(connection, trains, since=since)
    return {
        train: TrainModel(
            _in_milliseconds(durations[train]), failures[train][0] / failures[train][1], "history"
        )
        for train in trains
        if durations[train]
    }


def _in_milliseconds(durations: Iterable[float]) -> tuple[float, ...]:
    """SQLite computes with days, which leaves an error in the microseconds."""
    return tuple(round(seconds, 3) for seconds in durations)


class _Forecaster:
    """Prepares a simulation as the scenario says, runs it, and collects the runs."""

    def __init__(self, context: AppContext, scenario: Scenario, facts: StoredFacts) -> None:
        self._scenario = scenario
        self._facts = facts
        self._timetable = self._build_timetable(context.declarations.timetable())
        self._models = self._build_models(context)
        self._context = self._build_parts(context)
        self._start = scenario.start or facts.now.replace(second=0, microsecond=0)
        self._length = timedelta(days=scenario.days)
        chosen = next(resolution for days, resolution in RESOLUTIONS if self._length <= days)
        self._resolution = scenario.resolution or chosen
        self._slots = scenario.slots or context.slots
        self._randoms: dict[int | None, Random] = {}

    def run(self, on_progress: Callable[[float], None]) -> Forecast:
        simulation = Simulation(self._scenario.seed, self._start, resolution=self._resolution)
        with simulation.open():
            for number in range(1, self._scenario.servers + 1):
                self._build_server(simulation, number).start()
            for step in range(1, STEPS + 1):
                simulation.run_until(self._start + self._length * step / STEPS - MOMENT)
                on_progress(step / STEPS)
            runs = simulation.read(load_timed_runs)
            return self._collect(runs, simulation.read(dead_letters.count_by_manifest))

    def draw(self, job: Claimed, server: VirtualServer) -> DrawnJob:  # noqa: ARG002 - a `Workload`
        """What the code of a train does.

        The runs of a manifest have random numbers of their own, so that two scenarios differ only in what was
        changed, and not by chance.
        """
        random = self._randoms.get(job.manifest_id)
        if random is None:
            seed = f"{self._scenario.seed}/{job.manifest_id}"
            random = self._randoms[job.manifest_id] = Random(seed)  # noqa: S311 - repeatable, not secret
        return self._models[job.train].draw(random)

    def _build_server(self, simulation: Simulation, number: int) -> VirtualServer:
        return VirtualServer(
            simulation,
            f"server-{number}",
            self._context,
            self._timetable,
            self,
            slots=self._slots,
            has_housekeeping=False,
        )

    def _build_timetable(self, declared: Timetable) -> Timetable:
        """The declared manifests and groups, with what operators have edited, and the scenario's limits."""
        stored, limits, disabled = self._facts.groups, self._scenario.groups, self._facts.disabled
        known = [group.name for group in declared.groups]
        for name in limits:
            if name not in known:
                raise DefinitionError(f"the app has no group {name!r}{did_you_mean(name, known)}")
        groups = [
            replace(group, priority=row.priority, enabled=row.enabled, max_active_jobs=row.max_active_jobs)
            if (row := stored.get(group.name))
            else group
            for group in declared.groups
        ]
        manifests = [
            replace(each, enabled=False, renamed_from=())
            if each.external_id in disabled and each.enabled is None
            else replace(each, renamed_from=())
            for each in declared.manifests
        ]
        return replace(
            declared,
            manifests=tuple(manifests),
            groups=tuple(
                replace(group, max_active_jobs=limits[group.name]) if group.name in limits else group
                for group in groups
            ),
        )

    def _build_models(self, context: AppContext) -> dict[str, TrainModel]:
        """The model of each train, by all its names: given, from history, or the default."""
        models: dict[str, TrainModel] = {}
        given = {context.trains.get(name).name: seconds for name, seconds in self._scenario.durations.items()}
        failing = {context.trains.get(name).name: rate for name, rate in self._scenario.failures.items()}
        for name in context.trains.names:
            model = self._facts.models.get(name, TrainModel())
            if name in given:
                model = replace(model, seconds=(given[name],), source="given")
            if name in failing:
                model = replace(model, failure_rate=failing[name])
            models |= dict.fromkeys(context.trains.synonyms([name]), model)
        return models

    def _build_parts(self, context: AppContext) -> AppContext:
        rows = {**self._facts.settings}
        rows |= context.live.build_rows(rows, self._scenario.settings)
        in_force = Settings.from_values(context.live.plain_values(rows, Settings.model_fields))
        live = LiveSettings(in_force.with_changes({**QUIET, "metadata_cleanup_enabled": False}), {})
        self._settings = in_force
        return replace(
            context,
            live=live,
            submitters=_LocalSubmitters(),
            heartbeat=Heartbeat(context.store, live, context.identity, context.name, context.trains),
        )

    def _collect(self, runs: Iterable[TimedRun], letters: Mapping[str, int]) -> Forecast:
        manifests = self._timetable.manifests
        limits = {group.name: group.max_active_jobs for group in self._timetable.groups}
        used = {each.train for each in manifests}
        return Forecast(
            start=self._start,
            end=self._start + self._length,
            seed=self._scenario.seed,
            servers=self._scenario.servers,
            slots=self._slots,
            resolution=self._resolution,
            max_active_jobs=self._settings.max_active_jobs,
            runs=tuple(runs),
            manifests=tuple(each.external_id for each in manifests),
            parents={each.external_id: each.depends_on for each in manifests if each.depends_on},
            group_of={each.external_id: each.group for each in manifests},
            limits={name: limit if isinstance(limit, int) else None for name, limit in limits.items()},
            dead_letters=letters,
            trains={name: self._models[name] for name in sorted(used)},
        )


class _LocalSubmitters(Submitters):
    """All trains run on the simulated workers: remote engines are not simulated."""

    def build_routing(self, trains: Iterable[Train[Any, Any]]) -> Routing:
        return replace(super().build_routing(trains), submitters={}, default=LOCAL)
