"""What callers, operators and running jobs of a simulated company ask of the app, drawn from the seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.support.complete import complete
from tests.support.simulated_code import GROUPS, MINUTE, SECOND, TRAINS, Nothing, build_app

from trax import Item, every
from trax.errors import TraxError
from trax.train.context import Run
from trax.worker.app_context import ManifestActivator

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from tests.support.simulated_world import World

    from trax.inspect.virtual_server import VirtualServer
    from trax.store import Connection, Store
    from trax.store.runs.claim import Claimed

CALLS: Final = ("queue", "queue unique", "activate")
ACTS: Final = (
    "enable manifest",
    "disable manifest",
    "trigger manifest",
    "trigger group",
    "cancel manifest",
    "cancel group",
    "cancel runs",
    "cancel entries",
    "delete manifest",
    "schedule",
    "schedule many",
    "schedule once",
    "schedule dependent",
    "rerun",
    "requeue",
    "acknowledge",
    "limit group",
    "prioritise group",
    "switch group",
    "edit setting",
    "reset settings",
)
"""Each is done once before one is done again."""
LATEST_RUNS: Final = 300


class SharedStore:
    """Stands for the store of an operator's process, which opens nothing of its own."""

    def __init__(self, shared: Store) -> None:
        self._store = shared

    async def open(self) -> Store:
        return self._store

    def open_blocking(self) -> Store:
        return self._store

    def now(self, connection: Connection) -> datetime:
        return self._store.now(connection)


class Operators:
    """Everybody who is not a server. Their app has the trains, and declares nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self.app, self.trains = build_app(world.settings)
        shared: Any = SharedStore(world.simulation.store)
        context = self.app.context
        activator = ManifestActivator(shared, context.trains, context.parameters, context.live)
        self.app.context = replace(context, store=shared, activator=activator)
        self._next_acts: list[str] = []
        self._scheduled: list[str] = []
        """The manifests that were scheduled at run time."""

    def call(self) -> None:
        """A program queues jobs."""
        random, train = self._random, self._random.choice(TRAINS)
        options: dict[str, Any] = {
            "priority": random.choice([None, 0, 5, 31]),
            "group": random.choice([None, *GROUPS]),
        }
        if random.random() < 0.15:
            options["delay"] = random.choice([30, 600]) * SECOND
        if random.random() < 0.1:
            options["unique"] = random.choice("ab")
            self._do("queue unique", self.app.queue(self.trains[train], Nothing(), **options))
            return
        count = random.randint(1, self._world.options.batch)
        self._do("queue", self.app.queue_many(self.trains[train], [Nothing()] * count, **options))

    def act(self) -> None:
        """An operator does the next act."""
        if not self._next_acts:
            self._next_acts = self._random.sample(ACTS, len(ACTS))
        kind = self._next_acts.pop()
        acts: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            **self._acts_on_manifests(),
            **self._schedules(),
            **self._acts_on_records(),
            **self._acts_on_rules(),
        }
        self._do(kind, acts[kind]())

    def give_way(self) -> None:
        """Take back what would keep work waiting for ever."""
        for name in self._scheduled:
            self._do("delete manifest", self.app.manifests.delete(name))
        for name in GROUPS:
            self._do("open group", self.app.groups.update(name, enabled=True, max_active_jobs=None))
        self._do("reset settings", self.app.settings.reset())
        self._do("edit setting", self.app.settings.update(max_active_jobs=200))

    def _do(self, kind: str, verb: Coroutine[Any, Any, Any]) -> None:
        """What a person or a program does; a refusal is an answer, too."""
        world = self._world
        if not world.simulation.is_database_up:
            verb.close()
            return
        world.simulation.log("world", "somebody does: %s", kind)
        try:
            complete(verb)
        except TraxError as refused:
            world.count(f"{kind}, refused", "refused: %s", type(refused).__name__)
        else:
            world.faults.counts[kind] += 1
        finally:
            world.simulation.settle(kind)

    def _acts_on_manifests(self) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
        random, manifests, groups = self._random, self.app.manifests, self.app.groups
        name, group = self._some_manifest(), random.choice(GROUPS)
        delay = random.choice([None, 5 * MINUTE])
        return {
            "enable manifest": lambda: manifests.enable(name),
            "disable manifest": lambda: manifests.disable(name),
            "trigger manifest": lambda: manifests.trigger(name, delay=delay),
            "trigger group": lambda: groups.trigger(group),
            "cancel manifest": lambda: manifests.cancel(name),
            "cancel group": lambda: groups.cancel(group),
            "delete manifest": lambda: manifests.delete(name),
        }

    def _schedules(self) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
        """Schedules that no code declares."""
        random, manifests = self._random, self.app.manifests
        train, group = self.trains[random.choice(TRAINS)], random.choice(GROUPS)
        when, parent = every(minutes=random.choice([10, 30])), self._some_manifest()
        return {
            "schedule": lambda: manifests.schedule(train, self._new_name(), Nothing(), when, group=group),
            "schedule many": lambda: self._schedule_many(train, group),
            "schedule once": lambda: manifests.schedule_once(train, self._new_name(), Nothing(), 5 * MINUTE),
            "schedule dependent": lambda: manifests.schedule_dependent(
                train, self._new_name(), Nothing(), parent
            ),
        }

    def _acts_on_records(self) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
        app = self.app
        return {
            "cancel runs": lambda: app.executions.cancel(self._some_runs()),
            "cancel entries": lambda: app.work_queue.cancel(self._some_entries()),
            "rerun": lambda: app.executions.rerun(self._some_ended_run()),
            "requeue": app.dead_letters.requeue_all,
            "acknowledge": lambda: app.dead_letters.acknowledge_all("seen"),
        }

    def _acts_on_rules(self) -> dict[str, Callable[[], Coroutine[Any, Any, Any]]]:
        random, groups, name = self._random, self.app.groups, self._random.choice(GROUPS)
        limit = self._world.draw_limit([None, 0, 1, 5], [None, 0, 20, 60])
        priority, is_open = random.choice([0, 15, 31]), random.random() < 0.7
        edit = self._draw_edit()
        return {
            "limit group": lambda: groups.update(name, max_active_jobs=limit),
            "prioritise group": lambda: groups.update(name, priority=priority),
            "switch group": lambda: groups.update(name, enabled=is_open),
            "edit setting": lambda: self.app.settings.update(**edit),
            "reset settings": self.app.settings.reset,
        }

    def _draw_edit(self) -> dict[str, Any]:
        """A change of settings that an operator makes while servers run."""
        random = self._random
        limit = self._world.draw_limit([2, 10, 100, None], [20, 100, 300, None])
        edits: list[dict[str, Any]] = [
            {"max_active_jobs": limit},
            {"max_active_jobs": limit},
            {"max_queued_jobs_per_cycle": random.choice([5, 100])},
            {"max_work_queue_entries_per_cycle": random.choice([5, 200])},
            {"default_job_timeout": random.choice([2, 10]) * MINUTE},
            {"default_retry_delay": random.choice([10, 300]) * SECOND},
            {"timeout_counts_as_failure": random.random() < 0.5},
            {"manifest_manager_enabled": random.random() < 0.6},
            {"job_dispatcher_enabled": random.random() < 0.6},
        ]
        return random.choice(edits)

    async def _schedule_many(self, train: Any, group: str) -> None:
        name = self._new_name("-a", "-b")
        items = [Item("a", Nothing()), Item("b", Nothing())]
        await self.app.manifests.schedule_many(train, name, items, every(minutes=20), group=group)

    def activate_later(self, job: Claimed, server: VirtualServer, seconds: float) -> None:
        """Half-way through, a run activates the dormant dependents of its manifest, if its server lives."""
        plans = self._world.code.plans.items()
        names = [name for name, plan in plans if plan.kind == "dormant" and plan.parent == job.manifest]
        if names:
            run = Run(
                metadata_id=job.metadata_id,
                external_id=job.external_id,
                train=job.train,
                manifest=job.manifest,
            )
            wanted, is_forced = [(name, Nothing()) for name in names], self._random.random() < 0.5

            def activate() -> None:
                self._do("activate", self.app.context.activator(run, wanted, force=is_forced))

            self._world.simulation.after(seconds / 2 * SECOND, activate, server)

    def _new_name(self, *endings: str) -> str:
        """The name of a manifest, or of a batch of manifests with these endings."""
        name = f"live-{len(self._scheduled)}"
        self._scheduled += [f"{name}{ending}" for ending in endings or ("",)]
        return name

    def _some_manifest(self) -> str:
        return self._random.choice([*sorted(self._world.code.plans), *self._scheduled] or ["none"])

    def _some_runs(self) -> list[int]:
        active = sorted(self._world.promises.tables.active)
        return self._random.sample(active, min(len(active), 3)) or [1]

    def _some_ended_run(self) -> int:
        """One of the latest that began, if it has ended; else of those that may be deleted already."""
        promises = self._world.promises
        ended = sorted(promises.started - promises.tables.active.keys())[-LATEST_RUNS:]
        return self._random.choice(ended or [1])

    def _some_entries(self) -> list[int]:
        entries = self._world.promises.tables.entries
        queued = [entry_id for entry_id, entry in entries.items() if entry.status == "queued"][:50]
        return self._random.sample(queued, min(len(queued), 5)) or [1]
