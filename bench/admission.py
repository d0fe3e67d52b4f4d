"""What one dispatch cycle costs when the many entries of one full group come before all others."""

from __future__ import annotations

import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from bench.databases import database, vacuum_and_checkpoint
from bench.figures import goal
from bench.options import Options
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.settings import Settings
from trax.store import Store
from trax.store.pipeline import bulk_copy
from trax.store.schema import tables
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trax.store import Connection

FREE: Final = 200
FLOODED: Final = 1
"""The full group, which has nearly all the entries."""
RUNNING: Final = 10
OTHERS: Final = range(2, 22)
EACH: Final = 20
ROUNDS: Final = 15
NOW: Final = datetime(2027, 3, 1, 12, tzinfo=UTC)
EARLIER: Final = NOW - timedelta(hours=1)
SETTINGS: Final = Settings.load({"max_active_jobs": RUNNING + FREE}, {})
COLUMNS: Final = (
    "external_id",
    "train",
    "input",
    "status",
    "origin",
    "ready",
    "group_id",
    "created_at",
)
GOAL_FLAT: Final = 2.0


def main(options: Options) -> None:
    print(f"admission: one cycle, {FREE} free slots, a full group with a large backlog, median of {ROUNDS}")
    few = (1_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'trax.db'}"
        _cycles("SQLite", url, few if options.quick else (1_000, 100_000))
    with postgres(durable=True) as server, database(server) as url:
        _cycles("PostgreSQL", url, few if options.quick else (1_000, 100_000, 1_000_000))


def _cycles(name: str, url: str, sizes: tuple[int, ...]) -> None:
    store = Store(url, clock=lambda: NOW)
    store.open()
    store.run(_prepare)
    times: list[float] = []
    waiting = len(OTHERS) * EACH
    for size in sizes:
        store.run(_flood, size - waiting)
        waiting = size
        _prepare_database(store, url)
        times.append(statistics.median(_cycle(store) for _ in range(ROUNDS)))
        print(f"  {name:<11} {size:>9,} entries queued: {times[-1] * 1000:6.1f} ms a cycle")
    flat = times[-1] / times[0]
    what = f"{name}, {sizes[-1]:,} against {sizes[0]:,}"
    goal(what, f"{flat:.1f} x", f"at most {GOAL_FLAT} x", met=flat <= GOAL_FLAT)
    store.close()


def _prepare(connection: Connection) -> None:
    """The groups, the runs that fill the first one, and the few entries of the others, written last."""
    t = tables(connection)
    groups = [
        {"id": group, "name": f"group-{group}", "created_at": NOW, "updated_at": NOW}
        for group in (FLOODED, *OTHERS)
    ]
    connection.execute(t.manifest_group.insert(), groups)
    full = t.manifest_group.update().where(t.manifest_group.c.id == FLOODED)
    connection.execute(full.values(max_active_jobs=RUNNING))
    run = {"train": "noop", "state": "in_progress", "group_id": FLOODED, "submitter": "local", "worker_id": 1}
    runs = [
        run | {"external_id": f"run-{number}", "created_at": NOW, "started_at": NOW}
        for number in range(RUNNING)
    ]
    connection.execute(t.metadata.insert(), runs)
    others = (_entry(f"other-{group}-{one}", group, NOW) for one in range(EACH) for group in OTHERS)
    bulk_copy(connection, t.work_queue, COLUMNS, others)


def _flood(connection: Connection, more: int) -> None:
    bulk_copy(connection, tables(connection).work_queue, COLUMNS, _flooding(more))


def _flooding(more: int) -> Iterator[tuple[Any, ...]]:
    return (_entry(f"flood-{more}-{number}", FLOODED, EARLIER) for number in range(more))


def _entry(external_id: str, group_id: int, at: datetime) -> tuple[Any, ...]:
    return external_id, "noop", '{"number":1}', "queued", "queue", True, group_id, at


def _prepare_database(store: Store, url: str) -> None:
    if url.startswith("sqlite"):
        store.run(_analyze)
    else:
        vacuum_and_checkpoint(url)


def _analyze(connection: Connection) -> None:
    connection.execute(text("ANALYZE"))


def _cycle(store: Store) -> float:
    started = time.perf_counter()
    store.run(run_dispatch_cycle, store, SETTINGS, Routing())
    took = time.perf_counter() - started
    assert store.run(_undo) == FREE
    return took


def _undo(connection: Connection) -> int:
    """Undo what the cycle did; returns the number of runs."""
    t = tables(connection)
    made = t.metadata.c.group_id != FLOODED
    back = t.work_queue.update().where(t.work_queue.c.status == "dispatched")
    connection.execute(back.values(status="queued", metadata_id=None, dispatched_at=None))
    return connection.execute(t.metadata.delete().where(made)).rowcount


if __name__ == "__main__":
    main(Options())
