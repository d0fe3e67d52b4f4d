"""The code of simulated servers: trains, drawn manifests that deploys change, and drawn endings of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from trax import Cancel, Retry, RetryAfter, Snooze, Trax, cron, every, exclude, fire_all, junction
from trax.inspect.simulation import DrawnJob

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from trax.inspect.virtual_server import VirtualServer
    from trax.schedule.declaration import Timetable
    from trax.settings import Settings
    from trax.store.runs.claim import Claimed
    from trax.train import Train
    from trax.worker.app_context import AppContext

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
TRAINS: Final = ("work", "flaky", "strict", "free", "rare")
"""`strict` gives up on a ValueError, `free` is exempt from the limits, not every server has `rare`."""
GROUPS: Final = ("etl", "mail", "reports")
CRONS: Final = (
    "30 */2 * * *",
    "15 3 * * *",
    "0 9-17 * * mon-fri",
    "0 * * * *",
    "*/15 * * * *",
    "*/10 * * * *",
)
ENDINGS: Final = (
    (0.82, None),
    (0.08, RuntimeError("connection reset")),
    (0.02, ValueError("not a number")),
    (0.02, RetryAfter(timedelta(minutes=3))),
    (0.02, Snooze(timedelta(minutes=4))),
    (0.02, Cancel("nothing to do")),
)
DEPENDENT: Final = ("dependent", "dormant")
TOO_LONG: Final = 100_000.0


class Nothing(BaseModel):
    pass


def _work(nothing: Nothing) -> Nothing:
    return nothing


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What code says of one manifest."""

    kind: str
    train: str
    group: str
    cron: str = CRONS[0]
    minutes: int = 10
    parent: str | None = None
    renamed_from: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Code:
    """The manifests that the newest code declares. Deploys change it; older servers keep what they had."""

    def __init__(self, random: Random, size: int, pace: int = 1, *, is_large: bool = False) -> None:
        self.random = random
        self._pace = pace
        self._limits = [None, 10, 30, 60] if is_large else [None, 1, 2, 8]
        self.plans: dict[str, Plan] = {}
        self.limits: dict[str, int | None] = {name: random.choice(self._limits) for name in GROUPS}
        self.priorities = {name: random.choice([0, 10, 20]) for name in GROUPS}
        self._count = 0
        for _ in range(size):
            self.add()

    def add(self) -> str:
        self._count += 1
        name = f"job-{self._count}"
        self.plans[name] = self._draw_plan()
        return name

    def change(self) -> str:
        """Change the code as people do; returns what was changed."""
        random, names = self.random, sorted(self.plans)
        verb = random.choice(["add", "remove", "rename", "redraw", "limits"])
        if verb == "add" or not names:
            return f"adds manifest {self.add()}"
        name = random.choice(names)
        if verb == "remove":
            for gone in self._with_dependents(name):
                del self.plans[gone]
            return f"removes manifest {name} and those that depend on it"
        if verb == "rename":
            self._count += 1
            self._rename(name, f"job-{self._count}")
            return f"renames manifest {name} to job-{self._count}"
        if verb == "redraw":
            old, new = self.plans[name], self._draw_plan()
            if old.kind in DEPENDENT or new.kind in DEPENDENT:
                options = {"dormant": True} if old.kind == "dormant" else {}
                new = replace(new, kind=old.kind, parent=old.parent, options=options)
            self.plans[name] = replace(new, group=old.group, renamed_from=old.renamed_from)
            return f"changes the schedule of manifest {name}"
        group = random.choice(GROUPS)
        self.limits[group] = random.choice(self._limits)
        return f"changes the limit of group {group}"

    def declare(self, app: Trax, trains: Mapping[str, Train[Any, Any]]) -> Timetable:
        """The timetable of a server that starts with this code."""
        for name in GROUPS:
            app.group(name, max_active_jobs=self.limits[name], priority=self.priorities[name])
        for name, plan in self.plans.items():
            train = trains[plan.train]
            options: Any = {**plan.options, "group": plan.group}
            if plan.renamed_from is not None:
                options["renamed_from"] = plan.renamed_from
            declarations = app.context.declarations
            if plan.kind in DEPENDENT:
                declarations.after(str(plan.parent)).then_include(train, name, Nothing(), **options)
            elif plan.kind == "once":
                app.schedule_once(train, name, Nothing(), timedelta(minutes=plan.minutes), **options)
            elif plan.kind == "cron":
                app.schedule(train, name, Nothing(), cron(plan.cron), **options)
            else:
                anchored = plan.kind == "anchored"
                app.schedule(
                    train, name, Nothing(), every(minutes=plan.minutes, anchored=anchored), **options
                )
        return app.context.declarations.timetable()

    def _draw_plan(self) -> Plan:
        random = self.random
        parents = sorted(name for name, plan in self.plans.items() if plan.kind != "once")
        kinds = ["interval", "anchored", "cron", "cron", "once"] + [
            "dependent",
            "dependent",
            "dormant",
        ] * bool(parents)
        kind = random.choice(kinds)
        options: dict[str, Any] = {}
        if random.random() < 0.5:
            delay, jitter = timedelta(minutes=random.choice([1, 5])), random.choice([0.0, 0.5])
            options["retry"] = Retry(max_retries=random.choice([1, 2, 4]), delay=delay, jitter=jitter)
        if random.random() < 0.3:
            options["timeout"] = timedelta(minutes=random.choice([1, 3]))
        if kind in ("interval", "anchored", "cron"):
            if random.random() < 0.3:
                options["max_instances"] = random.choice([2, 3])
            if random.random() < 0.3:
                options["on_misfire"] = random.choice(["do_nothing", "fire_once_now", fire_all(3)])
            if random.random() < 0.2:
                options["variance"] = timedelta(minutes=2)
            if random.random() < 0.2:
                options["exclude"] = [exclude.time_window("12:00", "13:30")]
        parent = random.choice(parents) if kind in DEPENDENT else None
        if kind == "dormant":
            options["dormant"] = True
        return Plan(
            kind=kind,
            train=random.choice(["work", "work", "flaky", "strict", "free"]),
            group=self.plans[parent].group if parent else random.choice(GROUPS),
            cron=random.choice(CRONS if self._pace == 1 else CRONS[:4]),
            minutes=self._pace * random.choice([5, 10, 20, 60]),
            parent=parent,
            options=options,
        )

    def _rename(self, old: str, new: str) -> None:
        def renamed(name: str | None) -> str | None:
            return new if name == old else name

        self.plans = {
            new if name == old else name: replace(
                plan,
                parent=renamed(plan.parent),
                renamed_from=old if name == old else plan.renamed_from,
            )
            for name, plan in self.plans.items()
        }

    def _with_dependents(self, name: str) -> set[str]:
        gone = {name}
        while more := {child for child, plan in self.plans.items() if plan.parent in gone} - gone:
            gone |= more
        return gone


def build_server_context(code: Code, settings: Settings, *, has_rare: bool) -> tuple[AppContext, Timetable]:
    """What a process with this code has in memory when it starts."""
    app, trains = build_app(settings, has_rare=has_rare)
    return app.context, code.declare(app, trains)


def build_app(settings: Settings, *, has_rare: bool = True) -> tuple[Trax, dict[str, Train[Any, Any]]]:
    given: Any = {name: getattr(settings, name) for name in settings.model_fields_set}
    app = Trax("memory://", **given)
    retry = Retry(max_retries=3, delay=timedelta(minutes=1), multiplier=2.0, jitter=0.5)
    trains = {
        "work": app.train("work", junction(_work)),
        "flaky": app.train("flaky", junction(_work), retry=retry),
        "strict": app.train("strict", junction(_work), retry=Retry(max_retries=4, give_up_on=(ValueError,))),
        "free": app.train("free", junction(_work), exclude_from_max_active_jobs=True),
    }
    if has_rare:
        trains["rare"] = app.train("rare", junction(_work))
    return app, trains


class DrawnWork:
    """Draws how long jobs take and how they end, the worse the more `trouble`."""

    def __init__(self, random: Random, mean_seconds: float, *, is_large: bool = False) -> None:
        self._random = random
        self._mean_seconds = mean_seconds
        self._grid_seconds = random.choice([10, 30] if is_large else [0.001, 1, 10])
        """Jobs that start together often end together."""
        self.is_calm = False
        """Whether every job succeeds: then everything comes to an end."""
        self.on_begin: Callable[[Claimed, VirtualServer, float], None] | None = None
        """Called with each job, its server, and how many seconds it takes."""

    def draw(self, job: Claimed, server: VirtualServer) -> DrawnJob:
        random = self._random
        grid = self._grid_seconds
        seconds = round(random.expovariate(1 / self._mean_seconds) / grid) * grid
        if self.is_calm:
            return DrawnJob(seconds)
        if self.on_begin is not None:
            self.on_begin(job, server, seconds)
        chance = random.random()
        for share, raised in ENDINGS:
            if chance < share:
                return DrawnJob(seconds, raised)
            chance -= share
        return DrawnJob(TOO_LONG)
