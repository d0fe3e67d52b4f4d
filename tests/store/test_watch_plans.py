"""Frequent queries of pages and monitors cost the same beside any history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Text, cast, false, insert, literal, select, text, true
from tests.support.plans import rows_read, steps_taken

from trax.store import Store, status
from trax.store.dialect import is_sqlite
from trax.store.schema import tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Table

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
ALL = {"metadata", "work_queue", "manifest", "dead_letter", "audit", "tally"}
BOUND = 500
"""How far the questions look in these tests; what is written is more, and then five times that."""
MUCH = 6 * BOUND
GROUP: dict[str, Any] = {"name": "g", "created_at": NOW, "updated_at": NOW}
QUESTIONS: dict[str, Callable[[Connection], Any]] = {
    "pulse": status.read_change_marks,
    "gauges": partial(status.load_gauges, now=NOW, totals_until=NOW),
    "status": partial(status.load_status, now=NOW, lost_after=timedelta(seconds=20)),
}


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((status, "RECENT_RUNS"), (status, "COUNT_LIMIT"), (status, "COUNT_LIMIT")):
        monkeypatch.setattr(module, name, BOUND)
    assert status.MAX_ROWS == BOUND


def write(connection: Connection, count: int) -> None:
    """Of everything that a question may look at: so many rows."""
    t = tables(connection)
    made: dict[str, Any] = {"created_at": NOW}
    run: dict[str, Any] = {"train": "job", "worker_id": 1, **made}
    entry: dict[str, Any] = {"train": "job", "status": "queued", "origin": "queue", "group_id": 1, **made}
    letter: dict[str, Any] = {"train": "job", "reason": "no", "retry_count": 1, "fingerprint": ""}
    manifest: dict[str, Any] = {"train": "job", "group_id": 1, "origin": "runtime", "max_retries": 3}
    manifest |= {"schedule_type": "on_demand", "misfire_policy": "fire_once_now", "next_due_at": NOW}
    ended: dict[str, Any] = {"started_at": NOW, "ended_at": NOW}
    action: dict[str, Any] = {"at": NOW, "actor": "ada", "via": "api", "action": "groups.update"}
    many(connection, t.metadata, count, {**run, **ended, "state": "completed"})
    many(connection, t.metadata, count, {**run, **ended, "state": "failed"})
    many(connection, t.metadata, count, {**run, "state": "pending"})
    many(connection, t.metadata, count, {**run, "state": "in_progress", "started_at": NOW})
    many(connection, t.work_queue, count, {**entry, "ready": true()})
    many(connection, t.work_queue, count, {**entry, "ready": false(), "scheduled_at": NOW})
    many(connection, t.manifest, count, {**manifest, **made, "updated_at": NOW})
    letter |= {"status": "awaiting_intervention", "dead_lettered_at": NOW}
    many(connection, t.dead_letter, count, letter)
    many(connection, t.audit, count, {**action, "noun": "group", "ids": "[]", "targets": 1})


def many(connection: Connection, table: Table, count: int, values: dict[str, Any]) -> None:
    numbers = select(literal(1).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.n + 1).where(numbers.c.n < count))
    columns: dict[str, Any] = {
        name: value if hasattr(value, "compile") else literal(value, table.c[name].type)
        for name, value in values.items()
    }
    if "external_id" in table.c:
        state = values.get("state", values.get("ready", ""))
        columns["external_id"] = literal(f"{state}-{count}-", Text) + cast(numbers.c.n, Text)
    rows = select(*columns.values()).select_from(numbers)
    connection.execute(insert(table).from_select(list(columns), rows))


def effort(store: Store, question: Callable[[Connection], Any]) -> int:
    """What it costs: the rows that PostgreSQL reads, the steps that SQLite takes."""
    if store.read(is_sqlite):
        return steps_taken(store, question)
    store.run(lambda connection: connection.execute(text("ANALYZE")))
    return rows_read(store, question, of=ALL)


def test_a_frequent_query_costs_the_same_beside_any_history(store: Store) -> None:
    store.run(lambda connection: connection.execute(insert(tables(connection).manifest_group).values(GROUP)))
    store.run(write, MUCH)
    beside_much = {name: effort(store, question) for name, question in QUESTIONS.items()}

    store.run(write, 4 * MUCH)
    beside_more = {name: effort(store, question) for name, question in QUESTIONS.items()}

    assert {name: cost for name, cost in beside_much.items() if cost <= BOUND} == {}
    assert {
        name: (beside_much[name], cost)
        for name, cost in beside_more.items()
        if cost > beside_much[name] * 1.1
    } == {}
