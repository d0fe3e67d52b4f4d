"""Measure a contender: every measurement is taken here, in the same way for all contenders."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.children import children
from bench.contenders import TRAX
from bench.processes import is_running, tree_cpu_seconds
from trax.inspect.verify import verify
from trax.store import Store

if TYPE_CHECKING:
    from collections.abc import Generator

    from bench.children import Child
    from bench.contenders import Contender
    from bench.servers import Place, Servers

PAUSE_SECONDS: Final = 0.05
"""The pause after each job, so that the system is idle again."""
SAMPLE_SECONDS: Final = 0.005
BULK: Final = 1_000
MICROSECONDS: Final = 1e6
MILLISECONDS: Final = 1e3


class Drain(NamedTuple):
    """The figures of draining a full queue: jobs per second, and the cost of each job."""

    rate: float
    worker_us: float
    """Processor time of all working processes."""
    server_us: float
    """Processor time of the database server, including its background work."""
    wal_bytes: float | None


class Intake(NamedTuple):
    """Jobs enqueued per second, with many per call and one per call."""

    bulk: float
    single: float


class Latency(NamedTuple):
    """When each job was enqueued and when it started, in seconds since the first one was enqueued."""

    starts: list[tuple[float, float]]
    offered: int
    seconds: float


class Team(NamedTuple):
    """The processes of a contender: a client that queues and polls, and workers."""

    client: Child
    workers: list[Child]
    place: Place

    def drain(self, jobs: int) -> Drain:
        """Fill a queue, and measure the time from the command to work until the last result is stored."""
        self.client.ask(f"fill {jobs}", "filled")
        self.place.vacuum_and_checkpoint()
        wal, started = self.place.wal_bytes(), time.monotonic()
        for worker in self.workers:
            worker.tell("work")
        for worker in self.workers:
            worker.hear("works")
        # Processor time counts from here: the start of a process belongs to no job. This misses a part of
        # the first batch, which has begun by now.
        already, server, cpu = self._count(), self.place.cpu_seconds(), self._cpu_seconds()
        took = self.client.ask("wait", "done") - started
        cpu, server = self._cpu_seconds() - cpu, self.place.cpu_seconds() - server
        ran, left = self._count(), max(1, jobs - already)  # a quick run may be over at once
        assert ran >= jobs, f"{ran} of {jobs} jobs ran"
        return Drain(
            rate=jobs / took,
            worker_us=cpu / left * MICROSECONDS,
            server_us=server / left * MICROSECONDS,
            wal_bytes=None if wal is None else ((self.place.wal_bytes() or 0) - wal) / jobs,
        )

    def take_in(self, calls: int, singles: int, size: int = BULK) -> Intake:
        self.client.tell(f"enqueue {calls} {size} {singles}")
        return Intake(self.client.hear("bulk"), self.client.hear("single"))

    def pick_up(self, jobs: int) -> list[float]:
        """Queue single jobs for an idle worker; milliseconds from each call to the start of its job."""
        times: list[float] = []
        for _ in range(jobs + 1):
            time.sleep(PAUSE_SECONDS)
            self.client.tell("tell")
            started = self.workers[0].hear("started")
            times.append((started - self.workers[0].hear("asked")) * MILLISECONDS)
        return times[1:]  # the first one is a warm-up

    def _count(self) -> int:
        return sum(worker.ask("count", "ran") for worker in self.workers)

    def _cpu_seconds(self) -> float:
        return sum(tree_cpu_seconds(worker.pid) for worker in self.workers)


@contextmanager
def team(servers: Servers, contender: Contender, workers: int = 1) -> Generator[Team]:
    """Start the processes of a contender on a new database, all connected and none working yet."""
    with (
        servers.place(contender.storage) as place,
        children(1 + workers, contender.python, "bench.adapters", *contender.arguments(place.url)) as started,
    ):
        for process in started:  # one after the other: the first one creates the tables
            process.ask("connect", "connected")
        servers.versions[contender.name] = contender.version or "?"
        yield Team(started[0], started[1:], place)


def drain(servers: Servers, contender: Contender, jobs: int, processes: int = 1) -> Drain:
    with team(servers, contender, processes) as processes_of_it:
        drained = processes_of_it.drain(jobs)
        if contender.name == TRAX.name:
            findings = count_findings(processes_of_it.place.url)
            assert not findings, f"trax verify has {findings} findings after the drain"
        return drained


def count_findings(url: str) -> int:
    """The number of findings of `trax verify` after a benchmark; not part of any figure."""
    store = Store(url)
    try:
        return sum(verify(store).counts.values())
    finally:
        store.close()


def take_in(servers: Servers, contender: Contender, calls: int, singles: int) -> Intake:
    """Measure enqueueing without a worker."""
    with team(servers, contender, 0) as alone:
        return alone.take_in(calls, singles)


def pick_up(servers: Servers, contender: Contender, jobs: int) -> list[float]:
    with team(servers, contender) as pair:
        pair.workers[0].ask("work", "works")
        return pair.pick_up(jobs)


def offer(servers: Servers, contender: Contender, rate: int, seconds: int, *, hold: bool = False) -> Latency:
    """Queue single jobs at a steady rate while one process works.

    With `hold`, another session stays in a transaction, so that the server cannot remove dead rows.
    """
    with team(servers, contender) as (client, (worker,), place):
        worker.ask("work", "works")
        worker.ask("collect", "collects")
        with _transaction(place, hold=hold):
            client.tell(f"offer {rate} {seconds}")
            began, ended, offered = client.hear("began"), client.hear("ended"), client.hear("offered")
            starts = worker.ask("starts", "starts")  # as of the end: jobs that still wait are late
        since = [(asked - began, started - began) for asked, started in starts if asked >= began]
        return Latency(since, offered, ended - began)


def idle_share(servers: Servers, contender: Contender, jobs: int) -> float:
    """The share of a drain's time in which neither the worker nor the server uses a processor."""
    with team(servers, contender) as (client, (worker,), place):
        client.ask(f"fill {jobs}", "filled")
        place.vacuum_and_checkpoint()
        worker.ask("work", "works")
        with _sampler([worker.pid, *place.server_pids()]) as samples:
            client.ask("wait", "done")
        return 1 - sum(samples) / max(1, len(samples))


@contextmanager
def _sampler(pids: list[int]) -> Generator[list[bool]]:
    samples: list[bool] = []
    ended = Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            samples.append(any(map(is_running, pids)))

    thread = Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


@contextmanager
def _transaction(place: Place, *, hold: bool) -> Generator[None]:
    if not hold:
        yield
        return
    import psycopg

    with psycopg.connect(place.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        yield
        connection.rollback()
