"""One cycle of the manager with 100 due among many, and seeding many declared manifests."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, text

from trax import Trax, every
from trax.admin.cycle import manage
from trax.admin.manifest_manager import Turn
from trax.host.startup import start
from trax.settings import Settings
from trax.store import Store
from trax.store.copying import bulk_copy
from trax.store.schema import tables
from trax.testing import postgres

if TYPE_CHECKING:
    from trax.store import Connection

DUE: Final = 100
ROUNDS: Final = 15
DECLARED: Final = 10_000
NOW: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
LATER: Final = NOW + timedelta(days=1)
SETTINGS: Final = Settings.load({}, {})
LARGEST: Final = 1_000_000


def main() -> None:
    print(f"schedules: one cycle with {DUE} due (median of {ROUNDS}), and seeding {DECLARED:,} manifests")
    with tempfile.TemporaryDirectory() as folder:
        _cycles("SQLite", f"sqlite:///{Path(folder) / 'cycles.db'}", (1_000, 100_000))
        _seeding("SQLite", f"sqlite:///{Path(folder) / 'seeding.db'}")
    with postgres(durable=True) as url:
        _cycles("PostgreSQL", url, (1_000, 100_000, LARGEST))
    with postgres(durable=True) as url:
        _seeding("PostgreSQL", url)


def _cycles(name: str, url: str, sizes: tuple[int, ...]) -> None:
    store = Store(url, clock=lambda: NOW)
    store.open()
    times: list[float] = []
    before = 0
    for size in sizes:
        store.run(_fill, before, size)
        store.run(_analyze)
        before = size
        times.append(statistics.median(_cycle(store) for _ in range(ROUNDS)))
        ratio = f"{times[-1] / times[0]:.1f} x of {sizes[0]:,} (goal 2 x)" if len(times) > 1 else ""
        goal = "(goal 10 ms)" if size == LARGEST else ""
        print(f"  {name:<11} {DUE} due among {size:>9,}: {times[-1] * 1000:6.1f} ms {goal} {ratio}")
    store.close()


def _fill(connection: Connection, before: int, size: int) -> None:
    """Make manifests that are due tomorrow, numbered from `before` on up to `size`."""
    t = tables(connection)
    if before == 0:
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
    rows = ((f"m-{number}", *constants.values()) for number in range(before + 1, size + 1))
    bulk_copy(connection, t.manifest, ("external_id", *constants), rows)


def _analyze(connection: Connection) -> None:
    connection.execute(text("ANALYZE"))


def _cycle(store: Store) -> float:
    store.run(_make_due)
    started = time.perf_counter()
    managed = store.run(manage, store, SETTINGS, Turn())
    took = time.perf_counter() - started
    assert managed is not None
    assert len(managed.queued) == DUE
    return took


def _make_due(connection: Connection) -> None:
    t = tables(connection)
    connection.execute(t.work_queue.delete())
    due = t.manifest.c.id.in_(bindparam("ids", expanding=True))
    past = NOW - timedelta(minutes=10)
    changes = {"next_due_at": NOW, "last_successful_run": past}
    connection.execute(t.manifest.update().where(due).values(changes), {"ids": list(range(1, 1 + DUE))})


def _seeding(name: str, url: str) -> None:
    app = Trax(url)

    @app.train
    async def noop(number: int) -> None:
        raise AssertionError(number)

    app.schedule_many(noop, "batch", {str(n): n for n in range(DECLARED)}, every(minutes=5))
    timetable = app.parts.declarations.checked()
    store = app.parts.store.opened_blocking()
    for what in ("new", "unchanged"):
        started = time.perf_counter()
        asyncio.run(start(store, timetable, SETTINGS))
        print(f"  {name:<11} seeding {DECLARED:,} {what}: {time.perf_counter() - started:.2f} s")
    app.close()


if __name__ == "__main__":
    main()
