"""`make simulate`: simulate worlds, seed after seed, until the wanted hours and admissions are reached.

`python -m tests.simulation.soak --profile short --seed 17` repeats the world of one seed, event by event.
With `--postgresql` the worlds are on a server of their own, with faults on the way to it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from tests.support.databases import scratch_database
from tests.support.simulated_promises import BrokenPromise
from tests.support.simulated_world import PROFILES, run_world

from trax.inspect.simulation import EventLog
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHOWN_EVERY = 20


@dataclass
class Totals:
    """What was simulated: one world, or all so far."""

    worlds: int = 0
    hours: float = 0.0
    admissions: int = 0
    steps: Counter[str] = field(default_factory=Counter[str])
    """How many transactions of each kind servers began while there were faults."""
    transactions: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: Totals) -> None:
        self.worlds += other.worlds
        self.hours += other.hours
        self.admissions += other.admissions
        self.transactions += other.transactions
        self.steps += other.steps
        self.faults += other.faults
        self.outcomes += other.outcomes

    def __str__(self) -> str:
        return (
            f"{self.worlds} worlds, {self.hours:,.0f} hours, {self.admissions:,} admissions, "
            f"{self.transactions:,} transactions, {self.faults.total():,} faults and acts"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="long")
    parser.add_argument("--seed", type=int, help="repeat this one, and print its last events")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=10_000)
    parser.add_argument("--admissions", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--postgresql", action="store_true", help="on PostgreSQL instead of in memory")
    options = parser.parse_args(arguments)
    with postgres() if options.postgresql else nullcontext() as server:
        if options.seed is not None:
            return _repeat(options.seed, options.profile, server)
        return _soak(options, server)


def simulate_world(
    seed: int, profile: str, event_log: EventLog | None = None, server: str | None = None
) -> Totals:
    """Simulate the world of one seed; raises BrokenPromise with its last events."""
    with nullcontext() if server is None else scratch_database(server, f"simulated_{seed}") as url:
        world = run_world(seed, profile, event_log=event_log, url=url)
    return Totals(
        worlds=1,
        hours=world.hours,
        admissions=world.promises.admissions,
        transactions=sum(world.simulation.counts.values()),
        steps=world.faults.steps,
        faults=world.faults.counts,
        outcomes=world.promises.counts,
    )


def _repeat(seed: int, profile: str, server: str | None) -> int:
    event_log = EventLog()
    try:
        totals = simulate_world(seed, profile, event_log, server)
    except BrokenPromise as broken:
        print(broken)
        return 1
    print(f"{event_log.format()}\n\nseed {seed}: every promise held; {totals}")
    return 0


def _soak(options: argparse.Namespace, server: str | None) -> int:
    totals, began = Totals(), time.monotonic()
    try:
        for world in _simulate_worlds(options, server):
            totals.add(world)
            if totals.worlds % SHOWN_EVERY == 0:
                print(f"{(time.monotonic() - began) / 60:5.1f} min  {totals}", flush=True)
            if totals.hours >= options.hours and totals.admissions >= options.admissions:
                break
    except BrokenPromise as broken:
        print(f"{broken}\n\nbefore it: {totals}")
        return 1
    print(f"\nEvery promise held in {(time.monotonic() - began) / 60:.1f} min: {totals}")
    for title, counts in (("faults and acts", totals.faults), ("what came of it", totals.outcomes)):
        print(f"\n{title}")
        for name, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {number:>10,}  {name}")
    return 0


def _simulate_worlds(options: argparse.Namespace, server: str | None) -> Iterator[Totals]:
    """The worlds of all seeds from the first one on, some at once: a seed needs nothing of another."""
    with ProcessPoolExecutor(options.processes) as pool:
        seeds, running = count(options.first_seed), set[Future[Totals]]()
        try:
            while True:
                while len(running) < options.processes:
                    seed = next(seeds)
                    running.add(pool.submit(simulate_world, seed, options.profile, None, server))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for world in done:
                    yield world.result()
        finally:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
