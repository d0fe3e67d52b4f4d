"""One fleet under a steady load, and faults of every kind: nothing is lost, and its rate comes back."""

from __future__ import annotations

import random
import signal
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest
from tests.support.backends import cut_off, every_connection, read_only
from tests.support.chaos import ChaosFleet, chaos_fleet
from tests.support.chaos_load import LEASE_SECONDS, Load, last, leases_of, start_fleet, under_load
from tests.support.chaos_proxy import Proxy, proxy_to
from tests.support.databases import PostgresDatabases
from tests.support.waiting import until

from trax.testing.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime
    from pathlib import Path

    from tests.support.chaos import Process

ROLES = ("run", "run", "scheduler", "worker")
SEED = 20
KILLS = 5
FAULT_SECONDS = LEASE_SECONDS + 1
STALL_SECONDS = 3 * LEASE_SECONDS
OUTAGE_SECONDS = 60
"""Far longer than any lease or timeout here."""


class Site(NamedTuple):
    """The fleet, what it is connected through, and the server."""

    fleet: ChaosFleet
    server: PostgresServer
    url: str
    proxy: Proxy
    processes: dict[str, Process]

    def start(self, name: str) -> None:
        role, _, _ = name.partition("-")
        self.processes[name] = self.fleet.start(role, url=self.proxy.url, **leases_of(ROLES))


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    binaries: Path | None = request.param and request.getfixturevalue(request.param)
    with ExitStack() as stack:
        settings = {"max_connections": "80"}
        server = stack.enter_context(postgres_server(binaries=binaries, durable=True, settings=settings))
        url = stack.enter_context(PostgresDatabases(server.url).database())
        proxy = stack.enter_context(proxy_to(url))
        folder = tmp_path_factory.mktemp("fleet")
        fleet = stack.enter_context(chaos_fleet(folder, f"{url}?application_name=onlooker"))
        names = [f"{role}-{place}" for place, role in enumerate(ROLES)]
        processes = dict(zip(names, start_fleet(fleet, *ROLES, url=proxy.url), strict=True))
        yield Site(fleet, server, url, proxy, processes)


def kill_at_random(site: Site, load: Load) -> None:
    """Each role at least once, and its place is taken at once."""
    dice = random.Random(SEED)  # noqa: S311
    victims = [
        *dice.sample(sorted(site.processes), len(site.processes)),
        *dice.choices(sorted(site.processes), k=KILLS),
    ]
    for victim in victims[:KILLS]:
        wanted = len(load.began()) + dice.randint(1, 10)
        until(lambda wanted=wanted: len(load.began()) >= wanted)
        assert site.processes[victim].ended(signal.SIGKILL) == -signal.SIGKILL
        site.start(victim)


def crash(site: Site, load: Load) -> None:
    del load
    site.server.restart("immediate")


def cut_again_and_again(site: Site, load: Load) -> None:
    for _ in range(5):
        wanted = len(load.began()) + 3
        cut_off(site.url, only="trax%")
        until(lambda wanted=wanted: len(load.began()) >= wanted)


def take_every_place(site: Site, load: Load) -> None:
    """Whoever has a connection loses it, and somebody else has all of them."""
    del load
    with every_connection(site.url, of="trax%"):
        last(FAULT_SECONDS)


def stand_still(site: Site, load: Load) -> None:
    """Each role for longer than its lease, one of each at once."""
    del load
    still = [site.processes[name] for name in ("run-0", "scheduler-2", "worker-3")]
    for process in still:
        process.send(signal.SIGSTOP)
    last(FAULT_SECONDS)
    for process in still:
        process.send(signal.SIGCONT)


def refuse_to_write(site: Site, load: Load) -> None:
    del load
    with read_only(site.url, only="trax%"):
        last(FAULT_SECONDS)


def go_away(site: Site, load: Load) -> None:
    """For longer than every lease."""
    del load
    site.server.stop("immediate")
    last(OUTAGE_SECONDS)
    site.server.start()


def forward_nothing(site: Site, load: Load) -> None:
    del load
    with site.proxy.stalled():
        last(STALL_SECONDS)


def lock_tables(site: Site, load: Load) -> None:
    """One after the other, each for longer than anybody waits for a lock or a statement."""
    del load
    for table in ("work_queue", "metadata", "worker"):
        with psycopg.connect(site.url) as outsider:
            outsider.execute(f"LOCK TABLE trax.{table} IN ACCESS EXCLUSIVE MODE".encode())
            last(FAULT_SECONDS)


class Fault(NamedTuple):
    name: str
    happen: Callable[[Site, Load], None]
    pauses_for: float = 0
    """For so many seconds at least nobody can have completed anything."""


FAULTS = [
    Fault("every role is killed at random and started again", kill_at_random),
    Fault("the server crashes", crash),
    Fault("backends are terminated", cut_again_and_again),
    Fault("somebody else has every connection", take_every_place, pauses_for=LEASE_SECONDS),
    Fault("processes stand still for longer than their lease", stand_still),
    Fault("the server is read-only", refuse_to_write, pauses_for=LEASE_SECONDS),
    Fault("the server is away for a minute", go_away, pauses_for=OUTAGE_SECONDS),
    Fault("the network forwards nothing", forward_nothing, pauses_for=STALL_SECONDS - 1),
    Fault("an outsider locks one table after the other", lock_tables, pauses_for=FAULT_SECONDS - 1),
]


ON_NEWEST = {crash, cut_again_and_again, refuse_to_write}
"""Faults that depend on what the server does; these also happen to the newest one."""
CASES = [
    *(pytest.param(None, fault, id=fault.name) for fault in FAULTS),
    *(
        pytest.param("newest_binaries", fault, id=f"{fault.name}, newest PostgreSQL")
        for fault in FAULTS
        if fault.happen in ON_NEWEST
    ),
]


@pytest.mark.postgresql
@pytest.mark.parametrize(("site", "fault"), CASES, indirect=["site"])
def test_nothing_is_lost_and_the_rate_comes_back_after(site: Site, fault: Fault) -> None:
    with under_load(site.fleet, fault.happen.__name__) as load:
        load.settles()
        load.burst()
        fault.happen(site, load)
        load.recovers(database_now(site))
    load.judge()

    assert load.longest_pause() >= timedelta(seconds=fault.pauses_for)


def database_now(site: Site) -> datetime:
    with psycopg.connect(site.url) as connection:
        found = connection.execute("SELECT clock_timestamp()").fetchone()
    assert found
    return found[0]
