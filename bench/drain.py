"""How fast a full queue is processed (gate, claim, job, record), compared with PgQueuer and the bare SQL."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import ceiling
from bench.adapters.trax_jobs import SLOTS
from bench.contenders import PGQUEUER, TRAX, Contender, available
from bench.figures import Sheet, ratios, row, spread
from bench.filling import SHAPES, USUAL
from bench.options import Options
from bench.runner import MICROSECONDS, Drain, drain, idle_share
from bench.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.ceiling import Transaction

WIDTHS: Final = (28, 22, 18, 16, 14)
BARE: Final = "the bare SQL, one connection"
SQLITE: Final = replace(TRAX, storage="sqlite")
THEIR_DEFAULT: Final = 10
"""PgQueuer's default batch size."""


class Case(NamedTuple):
    name: str
    contender: Contender
    processes: int = 1


ON, ON_2 = USUAL, f"{USUAL}, 2 processes"
OFF, OFF_2 = "no limits", "no limits, 2 processes"
LONE, LONE_2 = "one group", "one group, 2 processes"
PEER, PEER_2 = "PgQueuer, 1 process", "PgQueuer, 2 processes"
SYNC, DEFAULT, PEER_DEFAULT = "sync trains", "out of the box", "PgQueuer out of the box"
FILE_ON, FILE_OFF = "SQLite, limits on", "SQLite, limits off"
BESIDE: Final = {
    **dict.fromkeys(SHAPES, PEER),
    **dict.fromkeys((ON_2, OFF_2, LONE_2), PEER_2),
    SYNC: PEER,
    DEFAULT: PEER_DEFAULT,
}
GOALS_BESIDE_PEER: Final = {
    **dict.fromkeys((shape for shape in SHAPES if shape != OFF), 1.5),
    ON_2: 1.25,
    LONE_2: 1.25,
    DEFAULT: 1.05,
}
CASES: Final = (
    Case(PEER, PGQUEUER),
    *(Case(shape, TRAX.with_settings(shape=shape)) for shape in SHAPES),
    Case(ON_2, TRAX, 2),
    Case(PEER_2, PGQUEUER, 2),
    Case(LONE_2, TRAX.with_settings(shape=LONE), 2),
    Case(OFF_2, TRAX.with_settings(shape=OFF), 2),
    Case(SYNC, TRAX.with_settings(train="noop_sync")),
    Case(DEFAULT, TRAX.with_settings(defaults=True)),
    Case(PEER_DEFAULT, PGQUEUER.with_settings(batch=THEIR_DEFAULT)),
    Case(FILE_ON, SQLITE),
    Case(FILE_OFF, SQLITE.with_settings(shape=OFF)),
)


def main(options: Options) -> None:
    jobs, rounds = options.sized(options.jobs, 500), options.sized(options.rounds, 1)
    print(
        f"drain: {jobs:,} jobs that do nothing, {SLOTS} slots per process, median (lowest to highest) of "
        f"{rounds}; limits: {_describe_shapes()}"
    )
    sheet = Sheet("drain", options)
    names = {one.name for one in available((TRAX, PGQUEUER))}
    cases = [case for case in CASES if case.contender.name in names]
    with Servers() as servers:
        figures, idle = _measure(servers, cases, jobs, rounds)
        sheet.versions |= servers.versions
    _show(figures)
    print(f"  Python and the server are both idle {spread(idle, '.0%')} of the time")
    _compare(sheet, figures)
    sheet.figures = {
        "jobs": jobs,
        "idle share": idle,
        "cases": {name: [one._asdict() for one in rounds] for name, rounds in figures.items()},
    }
    sheet.save()


def _describe_shapes() -> str:
    total = SHAPES[USUAL].max_active_jobs
    of_groups = (f"{shape.limit:,} in {name}" for name, shape in SHAPES.items() if shape.limit)
    return f"{total:,} in total; in each group " + ", ".join(of_groups)


def _measure(
    servers: Servers, cases: list[Case], jobs: int, rounds: int
) -> tuple[dict[str, list[Drain]], list[float]]:
    """Measure the cases in turn in each round, so that a slow minute of the machine affects all of them."""
    figures: dict[str, list[Drain]] = defaultdict(list)
    idle: list[float] = []
    statements = _record(servers, jobs)
    for _ in range(rounds):
        for name, contender, processes in cases:
            figures[name].append(drain(servers, contender, jobs, processes))
        figures[BARE].append(_replay(servers, jobs, statements))
        idle.append(idle_share(servers, TRAX, jobs))
    return figures, idle


def _record(servers: Servers, jobs: int) -> list[Transaction]:
    with servers.place("postgresql") as place, ceiling.open_store(place.url, jobs) as store:
        return ceiling.record(store, SLOTS)


def _replay(servers: Servers, jobs: int, statements: list[Transaction]) -> Drain:
    """The rows of every fresh database have the same ids, so what was sent once can be sent again."""
    with servers.place("postgresql") as place, ceiling.open_store(place.url, jobs) as store:
        place.vacuum_and_checkpoint()
        wal, server, cpu = place.wal_bytes() or 0, place.cpu_seconds(), time.process_time()
        took = ceiling.replay(store, place.url, statements, jobs)
        return Drain(
            rate=jobs / took,
            worker_us=(time.process_time() - cpu) / jobs * MICROSECONDS,
            server_us=(place.cpu_seconds() - server) / jobs * MICROSECONDS,
            wal_bytes=((place.wal_bytes() or 0) - wal) / jobs,
        )


def _show(figures: dict[str, list[Drain]]) -> None:
    row("", "jobs/s", "x PgQueuer", "Python µs/job", "server µs/job", "WAL B/job", widths=WIDTHS)
    for name, rounds in figures.items():
        theirs = figures.get(BESIDE.get(name, ""))
        times = spread(ratios(_rates(rounds), _rates(theirs)), ".2f") if theirs else ""
        wal = [one.wal_bytes for one in rounds if one.wal_bytes is not None]
        row(
            name,
            spread(_rates(rounds)),
            times,
            f"{median(one.worker_us for one in rounds):.0f}",
            f"{median(one.server_us for one in rounds):.0f}",
            f"{median(wal):,.0f}" if wal else "",
            widths=WIDTHS,
        )


def _compare(sheet: Sheet, figures: dict[str, list[Drain]]) -> None:
    """Print the goals."""
    add_drain_goals(sheet, figures)
    on = figures[ON]
    sheet.goal_at_least(f"{ON}, of the bare SQL", ratios(_rates(on), _rates(figures[BARE])), 0.75, ".0%")
    cost = [1 - one for one in ratios(_rates(on), _rates(figures[OFF]))]
    sheet.goal_at_most("cost of limits", cost, 0.15, ".0%")
    sheet.goal_at_least("sync trains", _rates(figures[SYNC]), 6_000, unit="/s")
    sheet.goal_at_least("SQLite, limits on", _rates(figures[FILE_ON]), 15_000, unit="/s")


def add_drain_goals(sheet: Sheet, figures: Mapping[str, list[Drain]]) -> None:
    """The goals about figures that `peers` measures, too."""
    for name, wanted in GOALS_BESIDE_PEER.items():
        if (ours := figures.get(name)) and (theirs := figures.get(BESIDE[name])):
            times = ratios(_rates(ours), _rates(theirs))
            sheet.goal_at_least(f"{name}, beside {BESIDE[name]}", times, wanted, ".2f", " x")
    on = figures[ON]
    sheet.goal_at_most("Python for each job", [one.worker_us for one in on], 30, ".0f", " µs")
    sheet.goal_at_most("server for each job", [one.server_us for one in on], 40, ".0f", " µs")
    sheet.goal_at_most("WAL for each job", [one.wal_bytes or 0 for one in on], 1_000, ",.0f", " bytes")


def _rates(rounds: list[Drain]) -> list[float]:
    return [one.rate for one in rounds]


if __name__ == "__main__":
    main(Options())
