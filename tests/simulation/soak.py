"""`make simulate`: simulate worlds, seed after seed, until the wanted hours and admissions are reached.

`python -m tests.simulation.soak --profile short --seed 17` repeats the world of one seed, event by event.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.simulated_promises import BrokenPromise
from tests.support.simulated_world import PROFILES, run_world

from trax.inspect.simulation import Story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.simulated_world import World

SHOWN_EVERY = 20


@dataclass
class Totals:
    """What was simulated so far."""

    worlds: int = 0
    hours: float = 0.0
    admissions: int = 0
    transactions: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])

    def add(self, world: World) -> None:
        self.worlds += 1
        self.hours += world.hours
        self.admissions += world.promises.admissions
        self.transactions += sum(world.simulation.counts.values())
        self.faults += world.faults.counts
        self.outcomes += world.promises.counts

    def __str__(self) -> str:
        return (
            f"{self.worlds} worlds, {self.hours:,.0f} hours, {self.admissions:,} admissions, "
            f"{self.transactions:,} transactions, {self.faults.total():,} faults and acts"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--profile", choices=sorted(PROFILES), default="long")
    parser.add_argument("--seed", type=int, help="repeat this one, and tell its story")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=10_000)
    parser.add_argument("--admissions", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _repeat(options.seed, options.profile)
    return _soak(options.profile, options.first_seed, options.hours, options.admissions)


def _repeat(seed: int, profile: str) -> int:
    story, totals = Story(), Totals()
    try:
        totals.add(run_world(seed, profile, story=story))
    except BrokenPromise as broken:
        print(broken)
        return 1
    print(f"{story.tell()}\n\nseed {seed}: every promise held; {totals}")
    return 0


def _soak(profile: str, seed: int, hours: float, admissions: int) -> int:
    totals, began = Totals(), time.monotonic()
    while totals.hours < hours or totals.admissions < admissions:
        try:
            totals.add(run_world(seed, profile))
        except BrokenPromise as broken:
            print(f"seed {seed}\n{broken}\n\nbefore it: {totals}")
            return 1
        if totals.worlds % SHOWN_EVERY == 0:
            print(f"{(time.monotonic() - began) / 60:5.1f} min  {totals}", flush=True)
        seed += 1
    print(f"\nEvery promise held in {(time.monotonic() - began) / 60:.1f} min: {totals}")
    for title, counts in (("faults and acts", totals.faults), ("what came of it", totals.outcomes)):
        print(f"\n{title}")
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:>10,}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
