"""How fast jobs come in: a thousand a call, and one a call; beside PgQueuer."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import peer
from bench.databases import database
from bench.figures import goal, ratios, row, spread
from bench.options import Options
from bench.railway import Job, railway
from trax.testing import postgres

if TYPE_CHECKING:
    from bench.railway import Railway

AT_ONCE: Final = 1_000
GOAL_BULK: Final = 1.5
GOAL_SINGLE: Final = 1.0
WIDTHS: Final = (32, 24)


class Taken(NamedTuple):
    """Jobs a second."""

    bulk: float
    single: float


class Size(NamedTuple):
    calls: int
    singles: int
    rounds: int


def main(options: Options) -> None:
    size = Size(options.sized(20, 2), options.sized(500, 20), options.sized(options.rounds, 1))
    print(
        f"enqueue: {size.calls} calls with {AT_ONCE:,} jobs each, and {size.singles} calls with one; "
        f"median (lowest to highest) of {size.rounds}"
    )
    has_peer = peer.is_there()
    with postgres(durable=True) as server:
        _beside_peer(server, size, has_peer=has_peer)
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_alone(f"sqlite:///{Path(folder) / 'trax.db'}", size))
    _show("SQLite", figures, [])


def _beside_peer(server: str, size: Size, *, has_peer: bool) -> None:
    ours: list[Taken] = []
    theirs: list[Taken] = []
    with database(server) as url, peer.filled(server, 0) if has_peer else nullcontext() as peer_url:
        for _ in range(size.rounds):
            ours += asyncio.run(_alone(url, size._replace(rounds=1)))
            if peer_url is not None:
                theirs.append(Taken(**peer.ask("enqueue", peer_url, size.calls, AT_ONCE, size.singles)))
    _show("PostgreSQL", ours, theirs)
    if theirs:
        _show("PgQueuer", theirs, [])
        _goal("bulk", [one.bulk for one in ours], [one.bulk for one in theirs], GOAL_BULK)
        _goal("single", [one.single for one in ours], [one.single for one in theirs], GOAL_SINGLE)


async def _alone(url: str, size: Size) -> list[Taken]:
    ours = railway(url)
    await ours.app.parts.store.open()
    figures = [await _taken(ours, size) for _ in range(size.rounds)]
    ours.app.close()
    return figures


async def _taken(ours: Railway, size: Size) -> Taken:
    jobs = [Job(number=number) for number in range(AT_ONCE)]
    await ours.app.queue_many(ours.noop, jobs)  # the first call pays for what is made once
    started = time.perf_counter()
    for _ in range(size.calls):
        await ours.app.queue_many(ours.noop, jobs)
    between = time.perf_counter()
    for _ in range(size.singles):
        await ours.app.queue(ours.noop, jobs[0])
    ended = time.perf_counter()
    return Taken(size.calls * AT_ONCE / (between - started), size.singles / (ended - between))


def _show(name: str, ours: list[Taken], theirs: list[Taken]) -> None:
    for field in Taken._fields:
        mine = [getattr(one, field) for one in ours]
        other = [getattr(one, field) for one in theirs]
        times = f"{spread(ratios(mine, other), '.2f')} x" if other else ""
        row(f"{name}, {field}", f"{spread(mine)}/s", times, widths=WIDTHS)


def _goal(name: str, ours: list[float], theirs: list[float], wanted: float) -> None:
    times = ratios(ours, theirs)
    figure = f"{spread(times, '.2f')} x"
    goal(f"{name} enqueue beside PgQueuer", figure, f"{wanted} x", met=median(times) >= wanted)


if __name__ == "__main__":
    main(Options())
