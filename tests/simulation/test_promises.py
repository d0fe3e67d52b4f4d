"""The promises hold whatever goes wrong: the real engine, simulated from a few seeds.

`make simulate` does the same for 10,000 hours and a million admissions. A seed that fails prints its last
events, and the command that repeats it.

Not simulated: `app.run`, handing over to remote engines and their receivers, jobs in other processes, and
what only PostgreSQL has: `apply_priorities`, lost connections, suspended sessions. Tested by `tests/host`,
`tests/engines`, `tests/race` and `tests/chaos`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from tests.simulation.soak import Totals, simulate_world
from tests.support.simulated_operators import ACTS, CALLS
from tests.support.simulated_world import PROFILES, STEPS, fault_at

from trax.inspect.simulation import EventLog, TransactionFault

WORLDS = [*(("quiet", seed) for seed in range(1, 4)), *(("short", seed) for seed in range(1, 6))]
EVENTS = ("SIGTERM", "crash", "deploy", "lost notification", "outage", "suspension")
SAME, OTHER = ("short", 1), ("short", 2)


class Simulated(NamedTuple):
    digest: str
    """Of all events and counts of the simulation."""
    totals: Totals


def test_every_promise_holds_with_every_fault_at_every_step() -> None:
    """Running a world checks every promise; all worlds together must leave out no fault and no act."""
    totals = Totals()
    for profile, seed in WORLDS:
        totals.add(simulated(profile, seed).totals)

    assert totals.steps.keys() == set(STEPS)
    faults = [fault_at(fault, step) for step in STEPS for fault in TransactionFault]
    wanted = [*faults, *EVENTS, *CALLS, *ACTS]
    assert [name for name in wanted if not totals.faults[name]] == []
    assert totals.outcomes["runs interrupted by a stop"]


@cache
def simulated(profile: str, seed: int) -> Simulated:
    event_log = EventLog(keep=None)
    totals = simulate_world(seed, profile, event_log)
    assert totals.admissions > 50
    assert totals.faults.total() > 10
    assert totals.hours >= PROFILES[profile].hours
    counts = sorted({**totals.faults, **totals.outcomes, **totals.steps}.items())
    return Simulated(sha256(f"{event_log.format()}\n{counts}".encode()).hexdigest(), totals)


def test_the_same_seed_gives_the_same_events_in_every_process_and_another_different_ones() -> None:
    code = f"from tests.simulation.test_promises import *; print(simulated(*{SAME}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}

    here = simulated(*SAME).digest
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=600
    )

    assert there.stdout.strip() == here
    assert simulated(*OTHER).digest != here
