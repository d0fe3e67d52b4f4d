from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.support.databases import IN_MEMORY_TOO

from trax.records.metadata import NewLogLine, NewRun
from trax.records.states import LogLevel
from trax.records.work_queue_entry import new_external_id
from trax.store.runs import metadata, run_log

if TYPE_CHECKING:
    from datetime import datetime

    from trax.store import Store

pytestmark = IN_MEMORY_TOO


def begun(store: Store, now: datetime) -> int:
    return store.run(metadata.begin, NewRun(external_id=new_external_id(), train="work"), now=now)


def line(metadata_id: int, message: str, now: datetime) -> NewLogLine:
    return NewLogLine(
        metadata_id=metadata_id,
        created_at=now,
        level=LogLevel.INFORMATION,
        logger="etl.load",
        message=message,
    )


def test_the_lines_of_a_run_are_read_in_order_and_page_by_page(store: Store, now: datetime) -> None:
    run, other = begun(store, now), begun(store, now)
    told = [
        line(run if number % 2 else other, str(number), now + timedelta(seconds=number))
        for number in range(500)
    ]

    store.run(run_log.add, told)

    first = store.read(run_log.load_by_run, run, limit=200)
    rest = store.read(run_log.load_by_run, run, after=first[-1].id, limit=200)
    assert [one.message for one in first + rest] == [str(number) for number in range(1, 500, 2)]
    assert {one.metadata_id for one in first + rest} == {run}
    assert (rest[-1].created_at, rest[-1].logger) == (now + timedelta(seconds=499), "etl.load")


def test_text_that_the_database_cannot_hold_is_kept_as_far_as_it_can_be(store: Store, now: datetime) -> None:
    run = begun(store, now)

    store.run(run_log.add, [line(run, "raw \x00 bytes \udcff and é", now)])

    (kept,) = store.read(run_log.load_by_run, run)
    assert kept.message == "raw \N{REPLACEMENT CHARACTER} bytes ? and é"


def test_a_line_of_a_deleted_run_is_skipped(store: Store, now: datetime) -> None:
    run = begun(store, now)

    store.run(run_log.add, [line(999_999, "too late", now), line(run, "in time", now)])

    assert [one.message for one in store.read(run_log.load_by_run, run)] == ["in time"]
    assert store.read(run_log.load_by_run, 999_999) == []
