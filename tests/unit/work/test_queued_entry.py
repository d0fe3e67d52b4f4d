from __future__ import annotations

import copy
import json
from dataclasses import FrozenInstanceError, asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from trax.records import Metadata, Origin, QueueStatus, WorkQueueEntry
from trax.records.work_queue_entry import EntryBatch, QueuedEntry, new_external_id, new_external_ids

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


async def wait_in_vain(entry: WorkQueueEntry, at_most: Any) -> Metadata:
    raise LookupError(entry.id, at_most)


def build(*texts: str) -> list[QueuedEntry]:
    fields = {"train": "greet", "status": QueueStatus.QUEUED, "origin": Origin.QUEUE, "created_at": NOON}
    inputs = {f"x{number}": text for number, text in enumerate(texts)}
    return QueuedEntry.build_all(
        EntryBatch(fields, json.loads, wait_in_vain), range(1, 1 + len(texts)), inputs
    )


def test_an_entry_that_is_built_with_others_has_all_fields() -> None:
    first, second = build('{"a": 1}', "2")

    assert first == WorkQueueEntry(
        id=1,
        external_id="x0",
        train="greet",
        status=QueueStatus.QUEUED,
        origin=Origin.QUEUE,
        input={"a": 1},
        created_at=NOON,
    )
    assert (second.id, second.external_id, second.input, second.group) == (2, "x1", 2, None)
    assert asdict(first) == first.as_fields()


def test_the_input_is_the_same_object_at_each_access() -> None:
    [entry] = build('{"a": 1}')

    assert entry.input is entry.input


def test_an_entry_can_be_copied_and_changed_in_a_copy() -> None:
    [entry] = build("1")

    assert copy.copy(entry) == copy.deepcopy(entry) == entry
    changed = replace(entry, priority=5)
    assert changed.as_fields() == {**entry.as_fields(), "priority": 5}


def test_an_entry_has_no_other_attributes_and_cannot_be_changed() -> None:
    [entry] = build("1")

    with pytest.raises(AttributeError, match="'QueuedEntry' object has no attribute 'nothing'"):
        _ = getattr(entry, "nothing")  # noqa: B009
    with pytest.raises(FrozenInstanceError):
        setattr(entry, "id", 7)  # noqa: B010


async def test_an_entry_waits_as_its_batch_does() -> None:
    [entry] = build("1")

    with pytest.raises(LookupError) as raised:
        await entry.wait(3)

    assert raised.value.args == (1, 3)


def test_new_external_ids_are_all_different_and_ascend() -> None:
    before = new_external_id()
    ids = new_external_ids(1_000)

    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
    assert before[:12] <= ids[0][:12]
    assert {len(each) for each in [before, *ids, *new_external_ids(1)]} == {32}
    assert new_external_ids(0) == []
