from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from trax.errors import StoreError
from trax.records import Origin, QueueStatus, WorkQueueEntry
from trax.records.work_queue_entry import NewEntry, new_external_id
from trax.store import Store, groups
from trax.store.queue import work_queue
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

BULK = work_queue.COPY_ABOVE + 1


def entry(**options: Any) -> NewEntry:
    given: dict[str, Any] = {"external_id": new_external_id(), "train": "greet", "origin": Origin.QUEUE}
    return NewEntry(**given | options)


def ready_ids(connection: Connection) -> list[int]:
    queue = tables(connection).work_queue
    return list(connection.execute(queue.select().where(queue.c.ready).order_by(queue.c.id)).scalars())


@pytest.mark.parametrize("others", [0, BULK])
def test_an_entry_comes_back_as_it_was_written(store: Store, now: datetime, others: int) -> None:
    group = store.run(groups.get_or_create, ["etl"], now=now)["etl"]
    given = entry(
        input='{"name": "Ada"}',
        priority=7,
        group_id=group.id,
        scheduled_at=now + timedelta(minutes=5),
        unique_key="ada",
        timeout_seconds=1.5,
        retry='{"max_retries": 1}',
    )

    *_, entry_id = store.run(work_queue.add, [*(entry() for _ in range(others)), given], now=now)

    assert store.read(work_queue.get, entry_id) == WorkQueueEntry(
        id=entry_id,
        external_id=given.external_id,
        train="greet",
        status=QueueStatus.QUEUED,
        origin=Origin.QUEUE,
        priority=7,
        group="etl",
        input={"name": "Ada"},
        scheduled_at=now + timedelta(minutes=5),
        created_at=now,
    )


@pytest.mark.parametrize("size", [2, BULK])
def test_ids_are_returned_in_the_order_given(store: Store, now: datetime, size: int) -> None:
    given = [entry() for _ in range(size)]

    ids = store.run(work_queue.add, given, now=now)

    found = [store.read(work_queue.get, entry_id) for entry_id in (ids[0], ids[-1])]
    assert [one and one.external_id for one in found] == [given[0].external_id, given[-1].external_id]
    assert len(set(ids)) == size


def test_ids_continue_after_a_bulk_load(store: Store, now: datetime) -> None:
    bulk = store.run(work_queue.add, [entry() for _ in range(BULK)], now=now)

    (after,) = store.run(work_queue.add, [entry()], now=now)

    assert after > max(bulk)


@pytest.mark.parametrize("others", [0, BULK])
def test_only_what_may_run_now_is_ready(store: Store, now: datetime, others: int) -> None:
    given = [
        entry(),
        entry(scheduled_at=now),
        entry(scheduled_at=now + timedelta(microseconds=1)),
        *(entry(scheduled_at=now + timedelta(days=1)) for _ in range(others)),
    ]

    ids = store.run(work_queue.add, given, now=now)

    assert store.read(ready_ids) == ids[:2]


@pytest.mark.parametrize("size", [1, BULK])
@pytest.mark.parametrize(
    "text",
    ['"a\\u0000b"', "true", "12345678901234567890", '"\\u00fc \\ud83d\\ude82"', "null", '{"b":1,"a":2}'],
)
def test_json_is_stored_unchanged(store: Store, now: datetime, size: int, text: str) -> None:
    def stored(connection: Connection) -> set[str]:
        queue = tables(connection).work_queue
        return set(connection.execute(queue.select()).scalars("input"))

    store.run(work_queue.add, [entry(input=text) for _ in range(size)], now=now)

    assert store.read(stored) == {text}


def test_a_second_queued_entry_of_one_unique_key_is_refused(store: Store, now: datetime) -> None:
    store.run(work_queue.add, [entry(unique_key="one")], now=now)

    with pytest.raises(StoreError, match="unique_key"):
        store.run(work_queue.add, [entry(unique_key="two"), entry(unique_key="one")], now=now)

    assert len(store.read(ready_ids)) == 1


@pytest.mark.parametrize("second", [Origin.SCHEDULE, Origin.RETRY])
def test_a_second_scheduled_entry_of_a_manifest_is_refused_and_one_of_a_trigger_is_not(
    store: Store, now: datetime, second: Origin
) -> None:
    store.run(work_queue.add, [entry(manifest_id=7, origin=Origin.SCHEDULE)], now=now)
    store.run(work_queue.add, [entry(manifest_id=7, origin=Origin.TRIGGER)], now=now)

    with pytest.raises(StoreError):
        store.run(work_queue.add, [entry(manifest_id=7, origin=second)], now=now)

    assert len(store.read(ready_ids)) == 2


@pytest.mark.parametrize("wrong", [{"priority": 32}, {"priority": -1}, {"attempt": 0}])
def test_the_tables_guard_themselves(store: Store, now: datetime, wrong: dict[str, int]) -> None:
    with pytest.raises(StoreError):
        store.run(work_queue.add, [entry(**wrong)], now=now)


def test_a_hundred_thousand_entries_in_one_call(store: Store, now: datetime) -> None:
    given = [entry(input='{"number": 1}') for _ in range(100_000)]

    ids = store.run(work_queue.add, given, now=now)

    assert len(store.read(ready_ids)) == len(ids) == 100_000


def test_an_unknown_entry_is_none(store: Store) -> None:
    assert store.read(work_queue.get, 1) is None
