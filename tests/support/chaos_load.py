"""A steady load on a town while something goes wrong: its rate before and after, and what came of it."""

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
from tests.support.verified import assert_clean
from tests.support.waiting import until

from trax.errors import StoreError, TraxError
from trax.records import State
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from sqlalchemy import Connection
    from tests.support.chaos import Process, Town

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
CATCH_UP_SECONDS = 1.0
SAMPLE = 15
"""So many completions in a row are a sample of the rate."""
RECOVERED = 0.9
RECOVERS_WITHIN = timedelta(seconds=30)
LEASE_SECONDS = 2.0
LEASES: dict[str, Any] = {
    "max_active_jobs": LIMIT,
    "local_worker_count": LIMIT,
    "worker_lost_after": LEASE_SECONDS,
    "hand_off_timeout": LEASE_SECONDS,
    "database_connect_timeout": 2,
    "database_network_timeout": 1,
    "database_statement_timeout": 2,
}
"""Everybody gives up after a few seconds: what lasts for three times the lease outlasts them all."""


class Began(NamedTuple):
    """A job, as it noted its own beginning: when by the shared clock, and by the clock of its process."""

    metadata_id: int
    name: str
    pid: int
    at: int
    wall_clock: float


def start_fleet(yard: Town, *roles: str, url: str | None = None, **settings: Any) -> list[Process]:
    """Start these, and wait until those that work are there."""
    processes = [yard.start(role, url=url, **{**LEASES, **settings}) for role in roles]
    yard.has_workers(sum(role != "scheduler" for role in roles))
    return processes


class Load:
    """Jobs that arrive at a steady rate, whether or not anything works on them."""

    def __init__(self, yard: Town, word: str) -> None:
        self._yard = yard
        self._word = word
        self._is_over = threading.Event()
        self._bursts = 0
        self.accepted: list[str] = []
        self.unanswered: list[str] = []
        """Whoever queued these got an error: each may have been accepted or not."""
        self.since = yard.store.read(yard.store.now)

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
            self._yard.queue(*names, train=TRAIN, group=group)
        except TraxError:
            self.unanswered += names
        else:
            self.accepted += names

    def end(self) -> None:
        self._is_over.set()

    def ends(self) -> list[datetime]:
        """When each completed run ended, without those of bursts; none if the database is away."""
        try:
            return self._yard.store.read(_ends, self.since)
        except StoreError:
            return []

    def baseline(self) -> timedelta:
        """How long a sample takes while nothing is wrong: at the rate of the load, not of a first backlog."""
        until(lambda: len(self.ends()) > 2 * SAMPLE)
        ends = self.ends()
        return max((ends[2 * SAMPLE] - ends[0]) / 2, SAMPLE * timedelta(seconds=TICK_SECONDS))

    def recovers(self, over_at: datetime, baseline: timedelta) -> None:
        """Wait for a sample that began after this moment and is as quick as before, or nearly."""
        until(lambda: self._recovered_at(over_at, baseline) is not None)
        recovered_at = self._recovered_at(over_at, baseline)
        assert recovered_at
        assert recovered_at - over_at < RECOVERS_WITHIN

    def _recovered_at(self, over_at: datetime, baseline: timedelta) -> datetime | None:
        ends = [end for end in self.ends() if end >= over_at]
        samples = zip(ends, ends[SAMPLE:], strict=False)
        return next((last for first, last in samples if (last - first) * RECOVERED <= baseline), None)

    def longest_pause(self) -> timedelta:
        ends = self.ends()
        return max(after - before for before, after in pairwise(ends))

    def began(self) -> list[Began]:
        lines = [line.split() for line in self._yard.lines(TRAIN)]
        noted = [Began(int(one), name, int(pid), int(at), float(wall)) for one, name, pid, at, wall in lines]
        return [job for job in noted if job.name.startswith(f"{self._word}/")]

    def judge(self, *, may_fail: frozenset[str] = frozenset({"WorkerLost"})) -> None:
        """Wait until nothing is left, and look at what came of it."""
        until(lambda: self._yard.store.read(is_idle))
        records = [one for one in self._yard.records(train=TRAIN) if one.input.startswith(f"{self._word}/")]
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
        self._limits_held(began)
        assert_clean(self._yard.url)

    def _limits_held(self, began: list[Began]) -> None:
        """By what the jobs themselves noted, until they ended or their process stood still."""
        noted = (line.split() for line in self._yard.lines(f"{TRAIN}-ended"))
        ended = {int(metadata_id): int(at) for metadata_id, at in noted}
        still = {process.pid: process.still_at for process in self._yard.processes}
        spans = list[tuple[str, int, int]]()
        for job in began:
            known = [*still.get(job.pid, ()), ended.get(job.metadata_id, 0)]
            later = [at for at in known if at >= job.at]
            spans += [(job.name, job.at, min(later))] if later else []
        most = most_at_once((begin, end) for _, begin, end in spans)
        narrow = most_at_once((begin, end) for name, begin, end in spans if f"/{NARROW}/" in name)
        if self._bursts:
            assert (most, narrow) == (LIMIT, NARROW_LIMIT), "a limit was exceeded, or never reached"
        assert most <= LIMIT
        assert narrow <= NARROW_LIMIT


@contextmanager
def under_load(yard: Town, word: str) -> Generator[Load]:
    """Jobs keep arriving during this block."""
    load = Load(yard, word)
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
