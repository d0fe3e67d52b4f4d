"""Entries return to the queue once, and only from where the caller has found them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from trax.records import Origin, QueueStatus
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import admission, groups
from trax.store.admission import Admission
from trax.store.queue import requeue, work_queue
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store import Store


def dispatch(store: Store, now: datetime, **options: Any) -> tuple[int, int]:
    """An entry that has been dispatched, and its run."""
    given: dict[str, Any] = {"train": "work", "origin": Origin.QUEUE, **options}
    new = NewEntry(external_id=new_external_id(), **given)
    (entry_id,) = store.run(work_queue.add, [new], now=now)
    admitted = store.run(admission.admit, [Admission(entry_id, "local", worker_id=7)], now=now)
    return entry_id, admitted.metadata_ids[0]


def change(connection: Connection, entry_id: int, values: dict[str, Any]) -> None:
    queue = tables(connection).work_queue
    connection.execute(update(queue).where(queue.c.id == entry_id).values(values))


def test_a_dispatched_entry_is_put_back_once(store: Store, now: datetime) -> None:
    entry_id, run_id = dispatch(store, now)

    assert store.run(requeue.put_back, {run_id: None}, attempts=1) == [entry_id]
    assert store.run(requeue.put_back, {run_id: None}, attempts=1) == []

    entry = store.read(work_queue.get, entry_id)
    assert entry
    assert (entry.status, entry.metadata_id, entry.dispatched_at) == (QueueStatus.QUEUED, None, None)
    row = store.read(requeue.load_by_runs, [run_id])[run_id]
    assert row.attempt == 2


@pytest.mark.parametrize("status", [QueueStatus.QUEUED, QueueStatus.CANCELLED])
def test_an_entry_that_was_withdrawn_or_queued_meanwhile_is_not_put_back(
    store: Store, now: datetime, status: QueueStatus
) -> None:
    entry_id, run_id = dispatch(store, now)
    store.run(change, entry_id, {"status": status.value, "dispatched_at": None})

    assert store.run(requeue.put_back, {run_id: None}, attempts=1) == []

    row = store.read(requeue.load_by_runs, [run_id])[run_id]
    assert (row.status, row.attempt) == (status, 1)


def test_an_entry_returns_with_the_priority_that_its_group_has_by_then(store: Store, now: datetime) -> None:
    groups_by_name = store.run(groups.get_or_create, ["etl"], now=now)
    entry_id, run_id = dispatch(store, now, group_id=groups_by_name["etl"].id)
    store.run(groups.change, "etl", {"priority": 9}, now=now)

    store.run(requeue.put_back, {run_id: None}, attempts=0)

    row = store.read(requeue.load_by_runs, [run_id])[run_id]
    assert (row.id, row.group_priority) == (entry_id, 9)


@pytest.mark.parametrize(
    ("origin", "after"),
    [
        (Origin.SCHEDULE, Origin.REQUEUE),
        (Origin.RETRY, Origin.REQUEUE),
        (Origin.TRIGGER, Origin.TRIGGER),
        (Origin.QUEUE, Origin.QUEUE),
    ],
)
def test_a_scheduled_entry_returns_beside_the_next_scheduled_one(
    store: Store, now: datetime, origin: Origin, after: Origin
) -> None:
    entry_id, run_id = dispatch(store, now)
    store.run(change, entry_id, {"manifest_id": 7, "origin": origin.value})
    next_one = NewEntry(external_id=new_external_id(), train="work", origin=Origin.SCHEDULE, manifest_id=7)
    store.run(work_queue.add, [next_one], now=now)

    assert store.run(requeue.put_back, {run_id: None}, attempts=0) == [entry_id]

    entry = store.read(work_queue.get, entry_id)
    assert entry
    assert entry.origin == after
