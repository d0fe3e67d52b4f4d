"""A simulated company: servers, callers, operators, deploys, and all that goes wrong, from one seed."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from tests.support.fault_proxy import fault_proxy
from tests.support.simulated_code import (
    GROUPS,
    HOUR,
    MINUTE,
    SECOND,
    Code,
    DrawnWork,
    build_server_context,
)
from tests.support.simulated_operators import Operators
from tests.support.simulated_postgresql import PostgresqlSimulation
from tests.support.simulated_promises import BrokenPromise, Promises
from tests.support.verified import assert_clean_store

from trax.errors import StoreUnavailable
from trax.inspect.simulation import EventLog, Faults, Simulation, TransactionFault
from trax.inspect.virtual_server import VirtualServer
from trax.settings import Settings
from trax.store import dialect, store

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from random import Random

    from tests.support.fault_proxy import Fault, FaultProxy

    from trax.events import Topic
    from trax.inspect.virtual_server import Role

START: Final = datetime(2027, 3, 1, tzinfo=UTC)
CALM: Final = timedelta(hours=20)
"""How long everything may take to come to an end after the last fault: the longest of all delays."""
FAULTS: Final = (
    TransactionFault.RESPONSE_LOST,
    TransactionFault.CRASH_BEFORE,
    TransactionFault.CRASH_AFTER,
    TransactionFault.PAUSE_AFTER,
    TransactionFault.REFUSED,
)
LARGEST_CHANCE: Final = 0.8
STEPS: Final = (
    "announce",
    "claim",
    "clean_dead_letters",
    "clean_metadata",
    "dispatch",
    "flush",
    "heartbeat",
    "leave",
    "manage",
    "register",
    "retire",
    "start",
    "totals",
    "watchdog",
)
"""The transactions of servers. `apply_priorities` is not among them: only PostgreSQL needs it."""
ROLES: Final[tuple[Role, ...]] = ("all", "scheduler", "worker")


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """How much happens in a world: its length, and how often callers come."""

    hours: float = 24
    batch: int = 40
    """The most jobs that a caller queues at once."""
    minutes_between_batches: float = 10
    manifests: int = 10
    pace: int = 1
    """How many times longer polls, heartbeats and intervals are: a long simulation has fewer of them."""
    is_large: bool = False
    """Whether limits and workers are large, so that a transaction moves many jobs."""
    fault_chance: float = 0.004
    """The chance that a transaction goes wrong."""
    minutes_between_events: float = 25
    """How often something happens to a server, or an operator does something."""


PROFILES: Final[dict[str, WorldOptions]] = {
    "short": WorldOptions(hours=3, pace=2, minutes_between_events=6, fault_chance=0.03),
    "brief": WorldOptions(hours=1, pace=2, minutes_between_events=4, fault_chance=0.08),
    "quiet": WorldOptions(
        hours=30,
        pace=12,
        batch=20,
        minutes_between_batches=60,
        minutes_between_events=90,
        fault_chance=0.05,
    ),
    "long": WorldOptions(
        pace=12,
        is_large=True,
        batch=400,
        minutes_between_batches=100,
        manifests=8,
        minutes_between_events=60,
    ),
}
"""`short` and `quiet` for the tests, `brief` for those on PostgreSQL, `long` for `make simulate`.

Only servers that live long clean up."""


def fault_at(fault: TransactionFault, step: str) -> str:
    """The name under which a fault of a step is counted."""
    return f"{fault.name.lower()} in {step}"


class DrawnFaults(Faults):
    """Faults of transactions and lost notifications, with drawn chances."""

    def __init__(self, random: Random, chance: float, seed: int) -> None:
        self._random = random
        self._chance = chance
        self.loss = random.choice([0.0, 0.1, 1.0])
        """The chance that a notification is lost; 1: only polls remain."""
        self.counts: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()
        """How many transactions of each kind servers began while there were faults."""
        self._seed = seed
        self._dealt: Counter[str] = Counter()
        """How many faults each step had: with each seed it begins with another kind, so none meets few."""
        self.lease_seconds = 0.0
        self.is_over = False

    def of_transaction(self, server: VirtualServer, step: str) -> TransactionFault | None:  # noqa: ARG002
        """Faults are spread evenly over the steps, also rare ones, and over the kinds at each step."""
        if self.is_over:
            return None
        self.steps[step] += 1
        rarity = self.steps.total() / (len(STEPS) * self.steps[step])
        if self._random.random() >= min(self._chance * rarity, LARGEST_CHANCE):
            return None
        self._dealt[step] += 1
        fault = FAULTS[(self._seed + self._dealt[step]) % len(FAULTS)]
        self.counts[fault_at(fault, step)] += 1
        return fault

    def loses_wake_up(self, server: VirtualServer, topic: Topic) -> bool:  # noqa: ARG002
        is_lost = self._random.random() < self.loss
        self.counts["lost notification"] += is_lost
        return is_lost

    def notification_seconds(self) -> float:
        return self._random.uniform(0.001, 0.05)

    def pause_seconds(self) -> float:
        return self.lease_seconds * self._random.choice([0.5, 1.5, 4])


class World:
    """One simulation with everything drawn from its seed."""

    def __init__(
        self,
        seed: int,
        options: WorldOptions | None = None,
        *,
        event_log: EventLog | None = None,
        url: str | None = None,
        proxy: FaultProxy | None = None,
    ) -> None:
        """In memory, or on the PostgreSQL at this address, which servers reach through a proxy."""
        self.options = options or WorldOptions()
        self.seed = seed
        self._url = url
        if proxy is None:
            self.simulation = Simulation(seed, START, event_log=event_log)
        else:
            self.simulation = PostgresqlSimulation(seed, START, proxy, event_log)
        self.random = random = self.simulation.random
        self.faults = self.simulation.faults = DrawnFaults(random, self.options.fault_chance, seed)
        self.settings = self._draw_settings()
        self.faults.lease_seconds = self.settings.worker_lost_after.total_seconds()
        self.code = Code(random, self.options.manifests, self.options.pace, is_large=self.options.is_large)
        self.work = DrawnWork(
            random, mean_seconds=random.choice([5.0, 20.0, 60.0]), is_large=self.options.is_large
        )
        self._names = 0
        self._is_over = False

    def run(self) -> None:
        """Let everything happen, then let it come to an end, and hold it against the promises."""
        with self.simulation.open(), ExitStack() as closed_at_end:
            self.promises = Promises(self.simulation, self.settings, self._url)
            closed_at_end.callback(self.promises.close)
            self.simulation.observer = self.promises
            self.operators = Operators(self)
            self.work.on_begin = self.operators.activate_later
            for role in self._draw_roles():
                self._start_server(role)
            self._repeat(self.options.minutes_between_batches, self.operators.call)
            self._repeat(self.options.minutes_between_events, self._happen)
            self.simulation.run_until(START + self.options.hours * HOUR)
            self._come_to_an_end()

    @property
    def proxy_faults(self) -> Counter[Fault]:
        """How many faults there were on the way to PostgreSQL."""
        simulation = self.simulation
        return simulation.proxy.counts if isinstance(simulation, PostgresqlSimulation) else Counter()

    @property
    def hours(self) -> float:
        return (self.simulation.now - START) / HOUR

    # what is drawn at the start

    def _draw_settings(self) -> Settings:
        random = self.random
        heartbeat, pace = random.choice([10, 20, 30]) * self.options.pace, self.options.pace
        return Settings(
            max_active_jobs=self.draw_limit([3, 10, 100, None], [20, 100, 300, None]),
            heartbeat_interval=heartbeat * SECOND,
            worker_lost_after=random.choice([2.5, 4]) * heartbeat * SECOND,
            manifest_manager_polling_interval=pace * random.choice([30, 60]) * SECOND,
            job_dispatcher_polling_interval=pace * random.choice([20, 60]) * SECOND,
            local_polling_interval=pace * random.choice([20, 60]) * SECOND,
            shutdown_timeout=random.choice([10, 60]) * SECOND,
            default_retry_delay=MINUTE,
            default_job_timeout=5 * MINUTE,
            stale_pending_timeout=30 * MINUTE,
            max_work_queue_entries_per_cycle=random.choice([5, 200]),
            max_queued_jobs_per_cycle=random.choice([5, 100]),
            timeout_counts_as_failure=random.random() < 0.5,
            metadata_cleanup_enabled=True,
            metadata_cleanup_retention=HOUR,
            metadata_cleanup_interval=HOUR / 2,
            dead_letter_retention_period=6 * HOUR,
        )

    def draw_limit(self, small: list[int | None], large: list[int | None]) -> int | None:
        return self.random.choice(large if self.options.is_large else small)

    def _draw_roles(self) -> list[Role]:
        roles: list[Role] = [self.random.choice(ROLES) for _ in range(self.random.choice([1, 2, 3, 4]))]
        return roles if "all" in roles else [*roles, "all"]

    # servers

    def _start_server(self, role: Role) -> None:
        self._names += 1
        random = self.random
        context, timetable = build_server_context(self.code, self.settings, has_rare=random.random() < 0.5)
        server = VirtualServer(
            self.simulation,
            f"server-{self._names}",
            context,
            timetable,
            self.work,
            role=role,
            slots=self.draw_limit([2, 10, 100], [30, 100, 300]) or 1,
        )
        server.clock_rate = random.choice([1.0, 0.97, 1.03])
        server.start()

    def _keep_roles(self) -> None:
        """Somebody restarts what has crashed: there is always a server that schedules, and one that works."""
        servers = [server for server in self.simulation.servers if not server.is_stopping]
        if len(servers) < 2 or not any(server.role == "all" for server in servers):
            self._start_server("all")

    # what happens

    def _repeat(self, minutes: float, act: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_over:
                with suppress(StoreUnavailable):
                    act()
                self._repeat(minutes, act)

        wait = self.random.expovariate(1 / minutes) * MINUTE
        self.simulation.after(wait, again)

    def _happen(self) -> None:
        """Something happens to a server, the database, or the settings."""
        acts = [
            self._crash,
            self._suspend,
            self._suspend,
            self._deploy,
            self._deploy,
            self._break_database,
            self._restart,
            *([self.operators.act] * 6),
        ]
        self.random.choice(acts)()
        self._keep_roles()

    def count(self, kind: str, text: str, *values: Any) -> None:
        self.faults.counts[kind] += 1
        self.simulation.log("world", text, *values)

    def _some_server(self) -> VirtualServer | None:
        servers = self.simulation.servers
        return self.random.choice(servers) if servers else None

    def _crash(self) -> None:
        if server := self._some_server():
            self.count("crash", "%s is killed", server.name)
            server.crash()

    def _suspend(self) -> None:
        if server := self._some_server():
            lost_after = self.settings.worker_lost_after.total_seconds()
            seconds = lost_after * self.random.choice([0.5, 1.5, 4, 20])
            self.count("suspension", "%s is suspended for %.0f s", server.name, seconds)
            server.suspend(seconds)

    def _restart(self) -> None:
        if server := self._some_server():
            self.count("SIGTERM", "%s is asked to stop", server.name)
            self._stop(server)
            self._start_server(server.role)

    def _stop(self, server: VirtualServer) -> None:
        self.promises.note_stop(server)
        server.stop()

    def _deploy(self) -> None:
        """New code: some servers are replaced at once, the others a while later."""
        change = self.code.change()
        self.count("deploy", "a deploy %s", change)
        for server in list(self.simulation.servers):
            wait = self.random.choice([0, 1, 5]) * MINUTE

            def replace_it(server: VirtualServer = server) -> None:
                if server.is_alive and not self._is_over:
                    self._stop(server)
                    self._start_server(server.role)

            self.simulation.after(wait, replace_it)

    def _break_database(self) -> None:
        seconds = self.settings.worker_lost_after.total_seconds() * self.random.choice([0.2, 1.0, 3.0])
        self.count("outage", "the database is unavailable for %.0f s", seconds)
        self.simulation.is_database_up = False

        def repair() -> None:
            self.simulation.is_database_up = True

        self.simulation.after(seconds * SECOND, repair)

    # the end

    def _come_to_an_end(self) -> None:
        """No more faults and callers; the last deploy declares nothing. Then nothing may be left."""
        self._is_over = self.faults.is_over = self.work.is_calm = True
        self.simulation.log("world", "no more faults; the last deploy declares no manifest")
        self.simulation.is_database_up = True
        self.code.plans.clear()
        self.code.limits = dict.fromkeys(GROUPS)
        for server in list(self.simulation.servers):
            server.suspended_until = None
            self._stop(server)
        self.operators.give_way()
        self._start_server("all")
        latest = self.simulation.now + CALM
        while not self.promises.is_drained and self.simulation.now < latest:
            self.simulation.run_until(self.simulation.now + HOUR)
        self.promises.check_at_end()
        assert_clean_store(self.simulation.store)


@contextmanager
def wrong_clocks(simulation: Simulation) -> Generator[None]:
    """The clocks of the servers are wrong, each time differently: nobody may read them."""

    def wrong_now() -> datetime:
        return simulation.now + simulation.random.uniform(-90, 90) * MINUTE

    with ExitStack() as patches:
        for module in (dialect, store):
            patches.enter_context(patch.object(module, "utc_now", wrong_now))
        yield


def run_world(
    seed: int, profile: str = "short", *, event_log: EventLog | None = None, url: str | None = None
) -> World:
    """Run the world of a seed; a broken promise is raised with its events and the command that repeats it.

    With the address of an empty database on PostgreSQL it happens there, with faults on the way to it.
    """
    with nullcontext() if url is None else fault_proxy(url) as proxy:
        return _run_world(World(seed, PROFILES[profile], event_log=event_log, url=url, proxy=proxy), profile)


def _run_world(world: World, profile: str) -> World:
    try:
        with wrong_clocks(world.simulation):
            world.run()
    except Exception as error:
        command = f".venv/bin/python -m tests.simulation.soak --profile {profile} --seed {world.seed}"
        if isinstance(world.simulation, PostgresqlSimulation):
            command += " --postgresql"
        told = (
            f"{type(error).__name__}: {error}\n\n{world.simulation.event_log.format()}\n\nreplay: {command}"
        )
        raise BrokenPromise(told) from error
    return world
