"""The promises hold whatever goes wrong: the real engine, simulated from a few seeds.

`make simulate` does the same for 10,000 hours and a million admissions. A seed that fails prints its last
events, and the command that repeats it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256

import pytest
from tests.support.simulated_world import START, World, run_world

from trax.inspect.simulation import EventLog

SEEDS = range(1, 5)
SAME, OTHER = 1, 2


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    assert digest_of_events(seed)


def check(world: World) -> None:
    """Running it has checked every promise; it must have had something to check."""
    assert world.promises.admissions > 50
    assert world.faults.counts.total() > 10
    assert world.simulation.now > START


@cache
def digest_of_events(seed: int) -> str:
    """A digest of all events and counts of a simulation."""
    event_log = EventLog(keep=None)
    world = run_world(seed, event_log=event_log)
    check(world)
    counts = sorted({**world.simulation.counts, **world.faults.counts, **world.promises.counts}.items())
    return sha256(f"{event_log.format()}\n{counts}".encode()).hexdigest()


def test_the_same_seed_gives_the_same_story_in_every_process_and_another_seed_another() -> None:
    code = f"from tests.simulation.test_promises import *; print(digest_of_events({SAME}))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}

    here = digest_of_events(SAME)
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=600
    )

    assert there.stdout.strip() == here
    assert digest_of_events(OTHER) != here
