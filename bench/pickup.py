"""How long an idle system takes from the call that queues a job to the start of that job; beside PgQueuer."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import peer
from bench.children import several
from bench.databases import database
from bench.figures import goal, percentile, row
from bench.options import Options
from bench.railway import railway
from trax.testing import postgres

if TYPE_CHECKING:
    from bench.children import Child

PAUSE_SECONDS: Final = 0.05
"""After each job, so that everything is idle again: both buffer their endings for less."""
AIM_MS: Final = 2.5
MILLISECONDS: Final = 1e3
WIDTHS: Final = (14, 14)


class Pair(NamedTuple):
    """Who queues and who works; the same process may do both."""

    name: str
    client: Child
    worker: Child


def main(options: Options) -> None:
    jobs = options.sized(150, 5)
    print(f"pickup: from the call to the start of the job, {jobs} jobs one by one on an idle system")
    has_peer = peer.is_there()
    with postgres(durable=True) as server, ExitStack() as stack:
        pairs = _ours(server, stack)
        if has_peer:
            pairs += _theirs(server, stack)
        figures = _measured(pairs, jobs)
    row("", "p50", "p99", widths=WIDTHS)
    for name, times in figures.items():
        row(name, f"{percentile(times, 0.5):.1f} ms", f"{percentile(times, 0.99):.1f} ms", widths=WIDTHS)
    _goals({name: percentile(times, 0.5) for name, times in figures.items()})


def _ours(server: str, stack: ExitStack) -> list[Pair]:
    url = stack.enter_context(database(server))
    made = railway(url)  # the tables, before two processes want to make them
    made.app.parts.store.open_blocking()
    made.app.close()
    python, environment = Path(sys.executable), {"TRAX_DATABASE_URL": url}
    client, worker = stack.enter_context(several(2, python, "bench.worker", environment=environment))
    worker.tell("work")
    worker.hear("works")
    return [Pair("Trax, another process", client, worker), Pair("Trax, same process", worker, worker)]


def _theirs(server: str, stack: ExitStack) -> list[Pair]:
    url = stack.enter_context(peer.filled(server, 0))
    client, worker = stack.enter_context(peer.workers(url, 2))
    worker.tell("work")
    worker.hear("works")
    return [
        Pair("PgQueuer, another process", client, worker),
        Pair("PgQueuer, same process", worker, worker),
    ]


def _measured(pairs: list[Pair], jobs: int) -> dict[str, list[float]]:
    """In turn, a job each, in milliseconds; the first of each warms up and does not count."""
    times: dict[str, list[float]] = {pair.name: [] for pair in pairs}
    for _ in range(jobs + 1):
        for pair in pairs:
            time.sleep(PAUSE_SECONDS)
            pair.client.tell("queue")
            asked = pair.client.hear("asked")
            times[pair.name].append((pair.worker.hear("started") - asked) * MILLISECONDS)
    return {name: all_of_them[1:] for name, all_of_them in times.items()}


def _goals(halves: dict[str, float]) -> None:
    ours = halves["Trax, another process"]
    theirs = halves.get("PgQueuer, another process")
    if theirs is not None:
        goal("p50, another process", f"{ours:.1f} ms", f"PgQueuer's {theirs:.1f} ms", met=ours <= theirs)
    goal("p50, another process", f"{ours:.1f} ms", f"{AIM_MS} ms to aim at", met=ours <= AIM_MS)


if __name__ == "__main__":
    main(Options())
