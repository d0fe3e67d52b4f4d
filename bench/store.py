"""How fast entries are written, compared with the same rows through the bare driver."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench.databases import database
from bench.options import Options
from trax.records import Origin
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import Store
from trax.store.queue import work_queue
from trax.testing import postgres

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
COLUMNS = ("id", "external_id", "train", "input", "status", "origin", "ready", "created_at")
NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)


def main(options: Options) -> None:
    rows = options.sized(100_000, 2_000)
    print(f"store: {rows:,} entries in one call, and one by one (median of {ROUNDS} rounds)")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trax.db"
        _compare("SQLite", f"sqlite:///{file}", lambda first: _raw_sqlite(file, first, rows), rows)
    with postgres(durable=True) as server, database(server) as url:
        _compare("PostgreSQL", url, lambda first: _raw_postgresql(url, first, rows), rows)


def _compare(name: str, url: str, raw: Callable[[int], float], rows: int) -> None:
    few = rows // 200
    store = Store(url)
    store.open()
    bulks: list[float] = []
    raws: list[float] = []
    singles: list[float] = []
    for number in range(ROUNDS):
        entries = [_entry() for _ in range(rows)]
        bulks.append(rows / _timed(lambda entries=entries: store.run(work_queue.add, entries, now=NOW)))
        raws.append(rows / raw((number + 1) * 10_000_000))
        singles.append(few / _timed(lambda: [_add_one(store) for _ in range(few)]))
    bulk, ceiling, single = (sorted(figures)[ROUNDS // 2] for figures in (bulks, raws, singles))
    print(f"  {name:<11} bulk {bulk:>9,.0f}/s = {bulk / ceiling:.0%} of the bare driver's {ceiling:,.0f}/s")
    print(f"  {'':<11} single {single:>7,.0f}/s")
    store.close()


def _entry() -> NewEntry:
    return NewEntry(
        external_id=new_external_id(), train="greet", origin=Origin.QUEUE, input='{"name": "Ada"}'
    )


def _add_one(store: Store) -> None:
    store.run(work_queue.add, [_entry()], now=NOW)


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _row(number: int, *, ready: Any, moment: Any) -> tuple[Any, ...]:
    return number, new_external_id(), "greet", '{"name": "Ada"}', "queued", "queue", ready, moment


def _raw_postgresql(url: str, first: int, count: int) -> float:
    rows = [_row(first + offset, ready=True, moment=NOW) for offset in range(count)]
    names = ", ".join(COLUMNS)
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        started = time.perf_counter()
        with cursor.copy(f"COPY trax.work_queue ({names}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
        return time.perf_counter() - started


def _raw_sqlite(file: Path, first: int, count: int) -> float:
    rows = [_row(first + offset, ready=1, moment="2027-03-01T12:00:00.000000Z") for offset in range(count)]
    marks = ", ".join("?" for _ in COLUMNS)
    statement = f"INSERT INTO trax_work_queue ({', '.join(COLUMNS)}) VALUES ({marks})"  # noqa: S608
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    started = time.perf_counter()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(statement, rows)
    connection.execute("COMMIT")
    connection.close()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(Options())
