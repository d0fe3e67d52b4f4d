"""A steady load on a fleet while something goes wrong: its rate before and after, and what came of it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Text, cast, select
from tests.support.fleet import is_idle, most_at_once
from tests.support.verified import assert_clean, assert_limits_are_known
from tests.support.waiting import until

from trax.errors import StoreError, TraxError
from trax.records import State
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from datetime import datetime

    from sqlalchemy import Connection
    from tests.support.chaos import ChaosFleet, Process

LIMIT = 6
NARROW, NARROW_LIMIT = "narrow", 2
TRAIN = "paced"
TICK_SECONDS = 0.1
"""Between two jobs; the limits allow five times as many, so the rate is that of the load."""
NARROW_TICK = 4
"""Every so-manieth tick queues for the group with a limit of its own."""
BURST_WORD = "burst"
BURST = 24
"""So many jobs at once make the limits bind; of the narrow group as many as its share."""
MOST_BURSTS = 10
"""One should do; on a busy machine a worker may be late for some."""
CATCH_UP_SECONDS = 1.0
SAMPLE = 15
"""So many completions in a row are a sample of the rate."""
RECOVERED = 0.9
RECOVERS_WITHIN = timedelta(seconds=30)
LEASE_SECONDS = 2.0
LEASES: dict[str, Any] = {
    "max_active_jobs": LIMIT,
    "worker_lost_after": LEASE_SECONDS,
    "hand_over_timeout": LEASE_SECONDS,
    "database_connect_timeout": 2,
    "database_network_timeout": 1,
    "database_statement_timeout": 2,
}
"""Everybody gives up after a few seconds: what lasts for three times the lease outlasts them all."""


class JobStart(NamedTuple):
    """A job, as it noted its own beginning: when by the shared clock, and by the clock of its process."""

    metadata_id: int
    name: str
    pid: int
    at: int
    wall_clock: float


def start_fleet(fleet: ChaosFleet, *roles: str, url: str | None = None, **settings: Any) -> list[Process]:
    """Start these, and wait until those that work are there."""
    given = {**leases_of(roles), **settings}
    processes = [fleet.start(role, url=url, **given) for role in roles]
    fleet.has_workers(sum(process.works for process in processes))
    return processes


def leases_of(roles: Collection[str]) -> dict[str, Any]:
    """The settings of a fleet that reaches its limit only if all of its workers work."""
    return {**LEASES, "local_worker_count": LIMIT // sum(role != "scheduler" for role in roles)}


class Load:
    """Jobs that arrive at a steady rate, whether or not anything works on them."""

    def __init__(self, fleet: ChaosFleet, word: str) -> None:
        self._fleet = fleet
        self._word = word
        self._is_over = threading.Event()
        self._bursts = 0
        self.accepted: list[str] = []
        self.unanswered: list[str] = []
        """Whoever queued these got an error: each may have been accepted or not."""
        self.since = fleet.store.read(fleet.store.now)
        self._worker_count = len(self._live_workers())

    def arrive(self) -> None:
        due, tick = time.monotonic(), 0
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            group = None if tick % NARROW_TICK else NARROW
            self._queue(f"{self._word}/{group}/{tick}", group=group)
            tick += 1
            due = max(due + TICK_SECONDS, time.monotonic() - CATCH_UP_SECONDS)

    def burst(self) -> None:
        """More jobs than the limits allow at once, beside those that arrive."""
        self._bursts += 1
        for group, count in ((None, BURST), (NARROW, BURST // NARROW_TICK)):
            names = [f"{self._word}/{group}/{BURST_WORD}-{self._bursts}-{number}" for number in range(count)]
            self._queue(*names, group=group)

    def _queue(self, *names: str, group: str | None) -> None:
        try:
            self._fleet.queue(*names, train=TRAIN, group=group)
        except TraxError:
            self.unanswered += names
        else:
            self.accepted += names

    def end(self) -> None:
        self._is_over.set()

    def ends(self) -> list[datetime]:
        """When each completed run ended, without those of bursts; none if the database is away."""
        try:
            return self._fleet.store.read(_ends, self.since)
        except StoreError:
            return []

    def settles(self) -> None:
        """Wait until the rate is that of the load, not of a first backlog, and all the fleet takes part."""
        until(lambda: len(self.ends()) > 2 * SAMPLE)
        ends = self.ends()
        self._baseline = max((ends[2 * SAMPLE] - ends[0]) / 2, SAMPLE * timedelta(seconds=TICK_SECONDS))
        self._whole_fleet_works(time.monotonic_ns())

    def recovers(self, over_at: datetime) -> None:
        """Wait for a sample that began after this moment and is as quick as before, or nearly.

        The rate is that of the load: it does not show a worker that never came back. Bursts do.
        """
        since = time.monotonic_ns()
        until(
            lambda: self._recovered_at(over_at) is not None,
            within_seconds=2 * RECOVERS_WITHIN.total_seconds(),
        )
        recovered_at = self._recovered_at(over_at)
        assert recovered_at
        assert recovered_at - over_at < RECOVERS_WITHIN
        self._whole_fleet_works(since)

    def _recovered_at(self, over_at: datetime) -> datetime | None:
        ends = [end for end in self.ends() if end >= over_at]
        samples = zip(ends, ends[SAMPLE:], strict=False)
        return next((last for first, last in samples if (last - first) * RECOVERED <= self._baseline), None)

    def _whole_fleet_works(self, since: int) -> None:
        """As many workers as before are alive, each begins jobs, and together they reach the limits."""
        workers = self._live_workers()
        assert len(workers) == self._worker_count, "a worker did not come back"
        idle, reached = workers, (0, 0)
        for _ in range(MOST_BURSTS):
            self._burst_to_the_end()
            idle = workers - {job.pid for job in self.began() if job.at >= since}
            reached = self._most_at_once(since)
            if not idle and reached == (LIMIT, NARROW_LIMIT):
                return
        assert not idle, f"of the workers {sorted(workers)}, these began no job: {sorted(idle)}"
        raise AssertionError(f"of {(LIMIT, NARROW_LIMIT)} places, {reached} were in use at once")

    def _burst_to_the_end(self) -> None:
        before = len(self.accepted)
        self.burst()
        wanted = {name for name in self.accepted[before:] if f"/{BURST_WORD}-" in name}
        until(lambda: wanted <= {job.name for job in self.began()})

    def _live_workers(self) -> set[int]:
        return {process.pid for process in self._fleet.processes if process.works and process.is_alive}

    def longest_pause(self) -> timedelta:
        ends = self.ends()
        return max(after - before for before, after in pairwise(ends))

    def began(self) -> list[JobStart]:
        lines = [line.split() for line in self._fleet.lines(TRAIN)]
        noted = [
            JobStart(int(one), name, int(pid), int(at), float(wall)) for one, name, pid, at, wall in lines
        ]
        return [job for job in noted if job.name.startswith(f"{self._word}/")]

    def judge(self, *, may_fail: frozenset[str] = frozenset({"WorkerLost"})) -> None:
        """Wait until nothing is left, and look at what came of it."""
        until(lambda: self._fleet.store.read(is_idle))
        records = [one for one in self._fleet.records(train=TRAIN) if one.input.startswith(f"{self._word}/")]
        completed = Counter(one.input for one in records if one.state is State.COMPLETED)
        assert completed.keys() >= set(self.accepted), "an accepted entry did not end"
        assert set(completed.values()) == {1}, "an entry completed twice"
        assert completed.keys() <= {*self.accepted, *self.unanswered}
        assert {one.failure_exception for one in records if one.state is State.FAILED} <= may_fail

        began = self.began()
        assert max(Counter(job.metadata_id for job in began).values()) == 1, "a record was executed twice"
        assert {one.id for one in records if one.state is State.COMPLETED} <= {
            job.metadata_id for job in began
        }
        assert self._most_at_once() == (LIMIT, NARROW_LIMIT), "a limit was exceeded, or never reached"
        assert_limits_are_known(assert_clean(self._fleet.url), [NARROW])

    def _most_at_once(self, since: int = 0) -> tuple[int, int]:
        """How many jobs that began since ran at once, in all and in the narrow group.

        By what the jobs themselves noted, until they ended or their process stood still.
        """
        noted = (line.split() for line in self._fleet.lines(f"{TRAIN}-ended"))
        ended = {int(metadata_id): int(at) for metadata_id, at in noted}
        still = {process.pid: process.still_at for process in self._fleet.processes}
        spans = list[tuple[str, int, int]]()
        for job in self.began():
            known = [*still.get(job.pid, ()), ended.get(job.metadata_id, 0)]
            later = [at for at in known if at >= job.at]
            spans += [(job.name, job.at, min(later))] if later and job.at >= since else []
        most = most_at_once((begin, end) for _, begin, end in spans)
        return most, most_at_once((begin, end) for name, begin, end in spans if f"/{NARROW}/" in name)


@contextmanager
def under_load(fleet: ChaosFleet, word: str) -> Generator[Load]:
    """Jobs keep arriving during this block."""
    load = Load(fleet, word)
    thread = threading.Thread(target=load.arrive, daemon=True)
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join(120)


def last(seconds: float) -> None:
    """Let what is wrong go on for so long."""
    over_at = time.monotonic() + seconds
    until(lambda: time.monotonic() > over_at)


def _ends(connection: Connection, since: datetime) -> list[datetime]:
    run = tables(connection).metadata
    is_ours = (run.c.train == TRAIN) & (run.c.ended_at >= since) & (run.c.state == State.COMPLETED)
    is_steady = cast(run.c.input, Text).not_like(f"%/{BURST_WORD}-%")
    return list(connection.scalars(select(run.c.ended_at).where(is_ours, is_steady).order_by(run.c.ended_at)))
