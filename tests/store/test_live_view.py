"""The data of the live view, on every database."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tests.support.results import run_result

from trax.records import State
from trax.records.metadata import NewRun, ProgressUpdate
from trax.records.stats import LastFailure, LiveView, RunningTrain
from trax.store import status
from trax.store.runs import metadata, run_log

if TYPE_CHECKING:
    from trax.store import Connection, Store

SECOND = timedelta(seconds=1)


def read(store: Store, now: datetime, *trains: str) -> LiveView:
    return store.read(status.read_live_view, trains, now=now, lost_after=20 * SECOND)


def begun(connection: Connection, train: str, now: datetime) -> int:
    return metadata.begin(connection, NewRun(external_id="r", train=train), now=now)


def ended(connection: Connection, train: str, state: State, at: datetime, why: str | None = None) -> int:
    run = begun(connection, train, at)
    failure = {"failure_exception": "OSError", "failure_reason": why} if why else {}
    metadata.finish(connection, [run_result(run, state, **failure)], now=at)
    return run


def test_an_empty_database_shows_nothing(store: Store, now: datetime) -> None:
    found = read(store, now, "greet")

    assert (found.running, found.next_due, found.last_failure) == ((), (), None)
    assert (found.completed, found.failed, found.status.ready) == (0, 0, 0)


def test_runs_are_counted_by_train_the_busiest_first(store: Store, now: datetime) -> None:
    store.run(begun, "roast", now)
    for _ in range(2):
        store.run(begun, "greet", now)

    assert read(store, now).running == (RunningTrain("greet", 2), RunningTrain("roast", 1))


def test_how_far_a_train_has_come_is_shown(store: Store, now: datetime) -> None:
    run = store.run(begun, "roast", now)
    note = ProgressUpdate(
        metadata_id=run, started_at=now, current_junction=None, junction_started_at=None, progress=0.25
    )
    store.run(run_log.write, [note])

    assert read(store, now).running == (RunningTrain("roast", 1, 0.25),)


def test_endings_of_the_last_minute_are_counted_for_the_trains_that_were_named(
    store: Store, now: datetime
) -> None:
    store.run(ended, "greet", State.COMPLETED, now - 59 * SECOND)
    store.run(ended, "greet", State.COMPLETED, now - 61 * SECOND)
    store.run(ended, "greet", State.FAILED, now)
    store.run(ended, "roast", State.COMPLETED, now)
    store.run(ended, "others", State.COMPLETED, now)

    found = read(store, now, "greet", "roast")

    assert (found.completed, found.failed) == (2, 1)


def test_the_latest_failure_has_its_reason(store: Store, now: datetime) -> None:
    store.run(ended, "greet", State.FAILED, now - SECOND, "early")
    last = store.run(ended, "roast", State.FAILED, now, "the oven is cold")
    store.run(ended, "greet", State.COMPLETED, now)

    assert read(store, now).last_failure == LastFailure(last, "roast", now, "OSError: the oven is cold")
