"""Entries of one call: written by one statement, or by several if they are too many."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax.errors import StoreError
from trax.events import Topic
from trax.records import Origin, QueueStatus, WorkQueueEntry
from trax.records.work_queue_entry import new_external_ids
from trax.store import Store, groups
from trax.store.queue import entry_batches, work_queue

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store.queue.entry_batches import InsertedBatch

COLUMNS = {"train": "greet", "origin": "queue", "priority": 3}
SEVERAL = 3


def inputs_of(*texts: str) -> dict[str, str]:
    return dict(zip(new_external_ids(len(texts)), texts, strict=True))


def write_alone(store: Store, inputs: dict[str, str], group: str | None = None) -> InsertedBatch | None:
    statement = entry_batches.bind_batch(store.dialect_name, inputs, COLUMNS, group=group)
    rows = store.run_alone(statement, Topic.WORK_QUEUE)
    return entry_batches.parse_inserted(rows) if rows else None


@pytest.mark.parametrize("others", [0, SEVERAL])
def test_entries_come_back_as_they_were_written(store: Store, now: datetime, others: int) -> None:
    group = store.run(groups.get_or_create, ["etl"], now=now)["etl"]
    inputs = inputs_of(*others * ["1"], '{"name": "Ada"}')
    later = now + timedelta(minutes=5)
    columns = COLUMNS | {
        "group_id": group.id,
        "group_priority": group.priority,
        "timeout_seconds": 1.5,
        "retry": '{"max_retries": 1}',
        "scheduled_at": later,
        "ready": False,
    }

    batch = store.run(entry_batches.add_batch, inputs, columns, now=now)

    assert batch.created_at == now
    assert store.read(work_queue.get, batch.ids[-1]) == WorkQueueEntry(
        id=batch.ids[-1],
        external_id=list(inputs)[-1],
        train="greet",
        status=QueueStatus.QUEUED,
        origin=Origin.QUEUE,
        priority=3,
        group="etl",
        input={"name": "Ada"},
        scheduled_at=later,
        created_at=now,
    )
    assert store.read(work_queue.next_delayed_at) == later


@pytest.mark.parametrize("limits", [{}, {"MAX_ROWS": 7}, {"MAX_CHARACTERS": 10}])
def test_ids_are_returned_in_the_order_given(
    store: Store, now: datetime, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(entry_batches, name, limit)
    inputs = inputs_of(*map(str, range(50)))

    batch = store.run(entry_batches.add_batch, inputs, COLUMNS, now=now)

    found = store.read(work_queue.load_by_ids, batch.ids)
    assert [found[entry_id].input for entry_id in batch.ids] == list(range(50))
    assert [found[entry_id].external_id for entry_id in batch.ids] == list(inputs)
    assert entry_batches.is_one_statement(inputs) == (not limits)


@pytest.mark.parametrize("number", [1, SEVERAL])
def test_a_statement_alone_is_a_transaction(store: Store, now: datetime, number: int) -> None:
    batch = write_alone(store, inputs_of(*number * ["1"]))

    assert batch is not None
    assert batch.created_at == now
    assert len(store.read(work_queue.load_by_ids, batch.ids)) == number


@pytest.mark.parametrize("number", [1, SEVERAL])
def test_nothing_is_written_to_a_group_that_does_not_exist(store: Store, now: datetime, number: int) -> None:
    inputs = inputs_of(*number * ["1"])
    assert write_alone(store, inputs, "etl") is None
    assert not store.read(work_queue.is_any_ready)

    store.run(groups.get_or_create, ["etl"], now=now)
    batch = write_alone(store, inputs, "etl")

    assert batch is not None
    found = store.read(work_queue.load_by_ids, batch.ids)
    assert {entry.group for entry in found.values()} == {"etl"}


@pytest.mark.parametrize("number", [1, SEVERAL])
@pytest.mark.parametrize(
    "text", ['"\\u0000 \\\\ \\n \\u001e"', '"ü 🚂"', '{"a":\n[1,\t2]}', "null", '"%s %% $1"']
)
def test_json_is_stored_unchanged(store: Store, number: int, text: str) -> None:
    batch = write_alone(store, inputs_of(*number * [text]))

    assert batch is not None
    for entry in store.read(work_queue.load_by_ids, batch.ids).values():
        assert entry.input == json.loads(text)


@pytest.mark.parametrize("wrong", [{"priority": 32}, {"origin": "nowhere"}])
def test_one_refused_entry_prevents_all(store: Store, now: datetime, wrong: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        store.run(entry_batches.add_batch, inputs_of("1", "2"), COLUMNS | wrong, now=now)

    assert not store.read(work_queue.is_any_ready)
