"""One cycle of the manager with 100 due among many, and seeding many declared manifests."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, text

from bench.databases import database, vacuum_and_checkpoint
from bench.figures import goal, spread
from bench.options import Options
from trax import Trax, every
from trax.engine.manifest_manager import ManagerInput, run_manager_cycle
from trax.server.start import start
from trax.settings import Settings
from trax.store import Store
from trax.store.pipeline import bulk_copy
from trax.store.schema import tables
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Callable

    from trax.store import Connection

DUE: Final = 100
WARM_UP: Final = 10
"""Rounds before the measured ones: in a server that has run for a while, statements are prepared."""
NOW: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
LATER: Final = NOW + timedelta(days=1)
SETTINGS: Final = Settings.load({}, {})
FEW: Final = (1_000, 5_000)
LARGEST: Final = 1_000_000
GOAL_MILLISECONDS: Final = 10
GOAL_FLAT: Final = 2
"""The goal: the ratio of the times with the most and with the fewest manifests."""


def main(options: Options) -> None:
    rounds, declared = options.sized(30, 2), options.sized(10_000, 500)
    print(
        f"schedules: one cycle with {DUE} due, median (lowest to highest) of {rounds} rounds in turn, and "
        f"seeding {declared:,} manifests"
    )
    with tempfile.TemporaryDirectory() as folder:
        sizes = FEW if options.quick else (1_000, 100_000)
        _cycles("SQLite", {size: f"sqlite:///{Path(folder)}/{size}.db" for size in sizes}, rounds)
        _seed("SQLite", f"sqlite:///{Path(folder) / 'seeding.db'}", declared)
    with postgres(durable=True) as server, ExitStack() as databases:
        sizes = FEW if options.quick else (1_000, 100_000, LARGEST)
        _cycles("PostgreSQL", {size: databases.enter_context(database(server)) for size in sizes}, rounds)
        _seed("PostgreSQL", databases.enter_context(database(server)), declared)


def _cycles(name: str, urls: dict[int, str], rounds: int) -> None:
    """Measure the sizes in turn in each round, so that a slow minute of the machine affects all of them."""
    stores = {size: _open_store(url, size) for size, url in urls.items()}
    times: dict[int, list[float]] = {size: [] for size in stores}
    committing: list[float] = []
    for number in range(WARM_UP + rounds):
        for size, store in stores.items():
            took, commit = _cycle(store), _timed(store, _touch)
            if number >= WARM_UP:
                times[size].append(took * 1000)
                committing.append(commit * 1000)
    for size in stores:
        print(f"  {name:<11} {DUE} due among {size:>9,}: {spread(times[size], '.1f')} ms")
    print(f"  {name:<11} of which one commit to disk: {spread(committing, '.1f')} ms")
    for store in stores.values():
        store.close()
    _goals(name, times)


def _goals(name: str, times: dict[int, list[float]]) -> None:
    smallest, largest = min(times), max(times)
    flat = median(times[largest]) / median(times[smallest])
    goal(
        f"{name}, {largest:,} beside {smallest:,}",
        f"{flat:.1f} x",
        f"at most {GOAL_FLAT} x",
        met=flat <= GOAL_FLAT,
    )
    if largest == LARGEST:
        took = median(times[largest])
        wanted = f"at most {GOAL_MILLISECONDS} ms"
        goal(f"{name}, among {largest:,}", f"{took:.1f} ms", wanted, met=took <= GOAL_MILLISECONDS)


def _open_store(url: str, size: int) -> Store:
    store = Store(url, clock=lambda: NOW)
    store.open()
    store.run(_fill, size)
    if url.startswith("postgresql"):
        vacuum_and_checkpoint(url)
    else:
        store.run(lambda connection: connection.execute(text("ANALYZE")))
    return store


def _fill(connection: Connection, size: int) -> None:
    """Create manifests that are due tomorrow."""
    t = tables(connection)
    connection.execute(t.manifest_group.insert().values(id=1, name="all", created_at=NOW, updated_at=NOW))
    constants = {
        "train": "noop",
        "input": "{}",
        "group_id": 1,
        "origin": "declared",
        "schedule_type": "interval",
        "interval_seconds": 300,
        "misfire_policy": "fire_once_now",
        "max_retries": 3,
        "last_successful_run": NOW,
        "next_due_at": LATER,
        "created_at": NOW,
        "updated_at": NOW,
    }
    rows = ((f"m-{number}", *constants.values()) for number in range(1, size + 1))
    bulk_copy(connection, t.manifest, ("external_id", *constants), rows)


def _cycle(store: Store) -> float:
    store.run(_make_due)
    started = time.perf_counter()
    managed = store.run(run_manager_cycle, store, SETTINGS, ManagerInput())
    took = time.perf_counter() - started
    assert managed is not None
    assert len(managed.queued) == DUE
    return took


def _timed(store: Store, function: Callable[[Connection], None]) -> float:
    started = time.perf_counter()
    store.run(function)
    return time.perf_counter() - started


def _touch(connection: Connection) -> None:
    """The smallest change that makes a commit wait for the disk."""
    group = tables(connection).manifest_group
    connection.execute(group.update().values(updated_at=NOW))


def _make_due(connection: Connection) -> None:
    t = tables(connection)
    connection.execute(t.work_queue.delete())
    due = t.manifest.c.id.in_(bindparam("ids", expanding=True))
    past = NOW - timedelta(minutes=10)
    changes = {"next_due_at": NOW, "last_successful_run": past}
    connection.execute(t.manifest.update().where(due).values(changes), {"ids": list(range(1, 1 + DUE))})


def _seed(name: str, url: str, declared: int) -> None:
    app = Trax(url)

    @app.train
    async def noop(number: int) -> None:
        raise AssertionError(number)

    app.schedule_many(noop, "batch", {str(n): n for n in range(declared)}, every(minutes=5))
    timetable = app.context.declarations.timetable()
    store = app.context.store.open_blocking()
    for what in ("new", "unchanged"):
        started = time.perf_counter()
        asyncio.run(start(store, timetable, SETTINGS))
        print(f"  {name:<11} seeding {declared:,} {what}: {time.perf_counter() - started:.2f} s")
    app.close()


if __name__ == "__main__":
    main(Options())
