from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from tests.support.databases import IN_MEMORY_TOO
from tests.support.results import run_result

from trax.records import Metadata, State
from trax.records.metadata import NewRun
from trax.store.runs import metadata
from trax.store.schema import tables

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection

    from trax.store import Store

pytestmark = IN_MEMORY_TOO

RUN = NewRun(external_id="3f", train="greet", input='{"name": "Ada"}', host="box", timeout_seconds=2.5)


def held_by(connection: Connection, metadata_id: int, worker_id: int) -> None:
    table = tables(connection).metadata
    connection.execute(table.update().where(table.c.id == metadata_id).values(worker_id=worker_id))


def test_a_run_is_recorded_as_in_progress(store: Store, now: datetime) -> None:
    metadata_id = store.run(metadata.begin, RUN, now=now)

    assert store.read(metadata.get, metadata_id) == Metadata(
        id=metadata_id,
        external_id="3f",
        train="greet",
        state=State.IN_PROGRESS,
        input={"name": "Ada"},
        created_at=now,
        started_at=now,
        host="box",
    )


def test_many_results_are_written_at_once(store: Store, now: datetime) -> None:
    good = store.run(metadata.begin, RUN, now=now)
    bad = store.run(metadata.begin, RUN, now=now)
    later = now + timedelta(seconds=3)

    ended = store.run(
        metadata.finish,
        [
            run_result(good, output='"hello"'),
            run_result(
                bad,
                State.FAILED,
                failure_junction="load",
                failure_exception="ValueError",
                failure_reason="x",
                stack_trace="line 1",
            ),
        ],
        now=later,
    )

    assert ended == {good, bad}
    done, failed = store.read(metadata.get, good), store.read(metadata.get, bad)
    assert done
    assert failed
    assert (done.state, done.output, done.ended_at) == (State.COMPLETED, "hello", later)
    assert (failed.state, failed.failure_junction, failed.failure_exception) == (
        State.FAILED,
        "load",
        "ValueError",
    )
    assert (failed.failure_reason, failed.stack_trace) == ("x", "line 1")


def test_nothing_leaves_a_terminal_state(store: Store, now: datetime) -> None:
    metadata_id = store.run(metadata.begin, RUN, now=now)
    store.run(metadata.finish, [run_result(metadata_id, State.CANCELLED)], now=now)

    ended = store.run(metadata.finish, [run_result(metadata_id, State.COMPLETED)], now=now)

    assert ended == set()
    found = store.read(metadata.get, metadata_id)
    assert found
    assert found.state is State.CANCELLED


def test_only_the_worker_that_holds_a_run_may_end_it(store: Store, now: datetime) -> None:
    metadata_id = store.run(metadata.begin, RUN, now=now)
    store.run(held_by, metadata_id, 7)

    assert store.run(metadata.finish, [run_result(metadata_id, worker_id=8)], now=now) == set()
    assert store.run(metadata.finish, [run_result(metadata_id, worker_id=None)], now=now) == set()
    assert store.run(metadata.finish, [run_result(metadata_id, worker_id=7)], now=now) == {metadata_id}


@pytest.mark.parametrize("text", ["a\x00b", "half \ud800 pair"])
def test_a_message_the_database_could_not_hold_does_not_lose_the_run(
    store: Store, now: datetime, text: str
) -> None:
    metadata_id = store.run(metadata.begin, RUN, now=now)

    ended = store.run(metadata.finish, [run_result(metadata_id, State.FAILED, failure_reason=text)], now=now)

    found = store.read(metadata.get, metadata_id)
    assert ended == {metadata_id}
    assert found
    assert found.failure_reason
    assert found.failure_reason[0] == text[0]


def test_an_unknown_run_is_none(store: Store) -> None:
    assert store.read(metadata.get, 1) is None
