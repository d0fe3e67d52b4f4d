"""How fast a full queue is worked off: gate, claim, job, record; beside PgQueuer and beside the bare SQL."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg

from bench import ceiling, peer
from bench.children import several
from bench.databases import database, settle
from bench.figures import goal, ratios, row, spread
from bench.filling import GLOBAL_LIMIT, GROUP_LIMIT, GROUPS, fill, is_drained, succeeded
from bench.options import Options
from trax.store import Store
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from bench.ceiling import Transaction
    from bench.children import Child

SLOTS: Final = 500
POLL_SECONDS: Final = 0.01
PATIENCE_SECONDS: Final = 300
PROCESSES: Final = {1: "1 process", 2: "2 processes"}
GOALS_BESIDE_PEER: Final = {1: 1.5, 2: 1.2}
"""By the number of processes."""
GOAL_OF_BARE_SQL: Final = 0.6
GOAL_COST_OF_LIMITS: Final = 0.15
GOAL_SQLITE: Final = 10_000
WIDTHS: Final = (30, 24, 18)


class Drained(NamedTuple):
    jobs_per_second: float
    cpu_microseconds: float
    """Of Python, for each job, in all processes together."""


Rounds = dict[str, list[Drained]]


def main(options: Options) -> None:
    jobs, rounds = options.sized(options.jobs, 1_000), options.sized(options.rounds, 1)
    print(
        f"drain: {jobs:,} jobs that do nothing, {SLOTS} slots a process, median (lowest to highest) of "
        f"{rounds}\n  limits on: {GLOBAL_LIMIT:,} in all and {GROUP_LIMIT} in each of {GROUPS} groups"
    )
    has_peer = peer.is_there()
    with postgres(durable=True) as server:
        _postgresql(_measured(server, jobs, rounds, has_peer=has_peer))
    _sqlite(jobs, rounds)


def _measured(server: str, jobs: int, rounds: int, *, has_peer: bool) -> Rounds:
    """Rounds in turn, so that a slow minute of the machine hits all of them."""
    figures: Rounds = defaultdict(list)
    said = _recorded(server, jobs)
    for _ in range(rounds):
        for processes in PROCESSES:
            figures[f"off {processes}"].append(_ours(server, jobs, processes, limited=False))
            if has_peer:
                figures[f"peer {processes}"].append(_theirs(server, jobs, processes))
            figures[f"on {processes}"].append(_ours(server, jobs, processes, limited=True))
        figures["raw"].append(_raw(server, jobs, said))
    return figures


def _ours(server: str, jobs: int, processes: int, *, limited: bool) -> Drained:
    with database(server) as url, _filled(url, jobs, limited=limited) as store:
        settle(url)
        return _drain(store, url, jobs, processes, limited=limited)


@contextmanager
def _filled(url: str, jobs: int, *, limited: bool) -> Generator[Store]:
    store = Store(url)
    store.open()
    store.run(fill, store, jobs, limited=limited)
    try:
        yield store
    finally:
        store.close()


def _drain(store: Store, url: str, jobs: int, processes: int, *, limited: bool) -> Drained:
    environment = {
        "TRAX_DATABASE_URL": url,
        "TRAX_LOCAL_WORKER_COUNT": str(SLOTS),
        "TRAX_MAX_ACTIVE_JOBS": str(GLOBAL_LIMIT) if limited else "none",
    }
    with several(processes, Path(sys.executable), "bench.worker", environment=environment) as workers:
        figures = _timed(workers, jobs, lambda: store.read(is_drained))
    assert store.read(succeeded) == jobs
    return figures


def _theirs(server: str, jobs: int, processes: int) -> Drained:
    with peer.filled(server, jobs) as url:
        settle(url)
        with psycopg.connect(url, autocommit=True) as connection:
            with peer.workers(url, processes) as workers:
                figures = _timed(workers, jobs, lambda: peer.is_drained(connection))
            assert peer.succeeded(connection) == jobs
        return figures


def _timed(workers: list[Child], jobs: int, is_done: Callable[[], bool]) -> Drained:
    """From the word to work until the last ending is written."""
    started = time.perf_counter()
    for worker in workers:
        worker.tell("work")
    while not is_done():
        assert time.perf_counter() - started < PATIENCE_SECONDS, "the queue does not get empty"
        time.sleep(POLL_SECONDS)
    took = time.perf_counter() - started
    for worker in workers:
        worker.tell("stop")
    cpu = sum(worker.hear("cpu") for worker in workers)
    return Drained(jobs / took, cpu / jobs * 1e6)


def _recorded(server: str, jobs: int) -> list[Transaction]:
    with database(server) as url, _filled(url, jobs, limited=True) as store:
        return ceiling.record(store, SLOTS)


def _raw(server: str, jobs: int, said: list[Transaction]) -> Drained:
    """The rows of every fresh database have the same ids, so what was said once can be said again."""
    with database(server) as url, _filled(url, jobs, limited=True) as store:
        settle(url)
        took = ceiling.replay(url, said)
        assert store.read(succeeded) == jobs
        return Drained(jobs / took, 0)


def _postgresql(figures: Rounds) -> None:
    for processes, name in PROCESSES.items():
        row(f"PostgreSQL, {name}", "jobs/s", "x PgQueuer", "Python µs/job", widths=WIDTHS)
        theirs = figures.get(f"peer {processes}")
        for which, title in (("off", "limits off"), ("on", "limits on")):
            _show(f"  {title}", figures[f"{which} {processes}"], theirs)
        if theirs:
            _show("  PgQueuer", theirs, None)
    row("PostgreSQL, no process at all", "jobs/s", widths=WIDTHS)
    row("  the bare SQL, one connection", spread(_rates(figures["raw"])), widths=WIDTHS)
    _goals(figures)


def _goals(figures: Rounds) -> None:
    for processes, wanted in GOALS_BESIDE_PEER.items():
        if theirs := figures.get(f"peer {processes}"):
            times = ratios(_rates(figures[f"on {processes}"]), _rates(theirs))
            goal(
                f"limits on, {PROCESSES[processes]}, beside PgQueuer",
                f"{spread(times, '.2f')} x",
                f"{wanted} x",
                met=median(times) >= wanted,
            )
    share = ratios(_rates(figures["on 1"]), _rates(figures["raw"]))
    goal(
        "limits on, of the bare SQL",
        spread(share, ".0%"),
        f"{GOAL_OF_BARE_SQL:.0%}",
        met=median(share) >= GOAL_OF_BARE_SQL,
    )
    kept = ratios(_rates(figures["on 1"]), _rates(figures["off 1"]))
    cost = [1 - one for one in kept]
    wanted = f"at most {GOAL_COST_OF_LIMITS:.0%}"
    goal("cost of limits", spread(cost, ".0%"), wanted, met=median(cost) <= GOAL_COST_OF_LIMITS)


def _sqlite(jobs: int, rounds: int) -> None:
    figures: Rounds = defaultdict(list)
    for _ in range(rounds):
        for which, limited in (("off", False), ("on", True)):
            with tempfile.TemporaryDirectory() as folder:
                url = f"sqlite:///{Path(folder) / 'trax.db'}"
                with _filled(url, jobs, limited=limited) as store:
                    figures[which].append(_drain(store, url, jobs, 1, limited=limited))
    row("SQLite, 1 process", "jobs/s", "", "Python µs/job", widths=WIDTHS)
    _show("  limits off", figures["off"], None)
    _show("  limits on", figures["on"], None)
    rates = _rates(figures["on"])
    goal("SQLite, limits on", f"{spread(rates)}/s", f"{GOAL_SQLITE:,}/s", met=median(rates) >= GOAL_SQLITE)


def _show(name: str, ours: list[Drained], theirs: list[Drained] | None) -> None:
    times = spread(ratios(_rates(ours), _rates(theirs)), ".2f") if theirs else ""
    cpu = f"{median(one.cpu_microseconds for one in ours):.0f}"
    row(name, spread(_rates(ours)), times, cpu, widths=WIDTHS)


def _rates(figures: list[Drained]) -> list[float]:
    return [one.jobs_per_second for one in figures]


if __name__ == "__main__":
    main(Options())
