"""The memory that `verify` needs does not depend on the length of the history."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, text

from trax import Trax
from trax.inspect.verify import verify
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from trax.store import Store

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RECORDS = 500
CHUNK = 100


def add_jobs(store: Store, first: int, count: int) -> None:
    """Insert jobs with a run, an entry, a key and a log line each, of which a few are active at a time."""

    def add(connection: Connection) -> None:
        t, jobs = tables(connection), range(first, first + count)
        connection.execute(insert(t.metadata), [*map(build_run, jobs)])
        connection.execute(insert(t.work_queue), [*map(build_entry, jobs)])
        lines = [{"metadata_id": job, **LINE} for job in jobs]
        connection.execute(insert(t.log), lines)
        connection.execute(text("ANALYZE"))  # as autovacuum does; else PostgreSQL joins row by row

    store.run(add)


LINE = {"created_at": NOON, "level": "information", "logger": "jobs", "message": "hello"}


def add_worker(store: Store) -> None:
    row = {"host": "here", "host_environment": "server", "host_instance_id": "here", "pid": 1, "trains": "[]"}
    columns = row | {"concurrency": 1, "started_at": NOON, "heartbeat_at": NOON}
    store.run(lambda connection: connection.execute(insert(tables(connection).worker).values(columns)))


def build_run(job: int) -> dict[str, Any]:
    at = NOON + job * SECOND
    return {
        "external_id": f"{job:032x}",
        "train": "work",
        "entry_id": job,
        "submitter": "local",
        "worker_id": 1,
        "state": "completed",
        "created_at": at,
        "started_at": at,
        "ended_at": at + 3 * SECOND,
    }


def build_entry(job: int) -> dict[str, Any]:
    at = NOON + job * SECOND
    return {
        "external_id": f"{job:032x}",
        "train": "work",
        "origin": "queue",
        "status": "dispatched",
        "former_key": f"key {job}",
        "metadata_id": job,
        "created_at": at,
        "scheduled_at": at,
        "dispatched_at": at,
        "ready": False,
    }


def peaks(store: Store) -> Iterator[int]:
    """The peak of its memory for a history of some length, and of four times that."""
    add_worker(store)
    done = 0
    for length in (RECORDS, 4 * RECORDS):
        add_jobs(store, done + 1, length - done)
        done = length
        verify(store, chunk=CHUNK)  # what is cached once is not counted
        tracemalloc.start()
        found = verify(store, chunk=CHUNK)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (found.counts, found.runs, found.entries, found.log_lines) == ({}, length, length, length)
        assert (found.total.most, found.keys.runs) == (3, length)
        yield peak


def test_four_times_the_history_needs_no_more_memory(url: str) -> None:
    app = Trax(url)

    first, second = peaks(app.context.store.open_blocking())

    assert second < 1.2 * first
    app.close()
