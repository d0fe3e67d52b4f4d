from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.results import run_result

from trax.records.metadata import Metadata, NewRun, ProgressUpdate
from trax.records.states import CancelReason
from trax.records.work_queue_entry import new_external_id
from trax.store import Store
from trax.store.runs import metadata, run_log
from trax.store.runs.rescue import request_cancel

if TYPE_CHECKING:
    from datetime import datetime


def begun(store: Store, now: datetime) -> int:
    return store.run(metadata.begin, NewRun(external_id=new_external_id(), train="work"), now=now)


def record(store: Store, metadata_id: int) -> Metadata:
    found = store.read(metadata.get, metadata_id)
    assert found
    return found


def note(metadata_id: int, *told: float | str | None, now: datetime) -> ProgressUpdate:
    fraction, message = told or (None, None)
    return ProgressUpdate(
        metadata_id=metadata_id,
        started_at=now,
        current_junction="load",
        junction_started_at=now,
        progress=fraction,  # pyright: ignore[reportArgumentType]
        progress_message=message,  # pyright: ignore[reportArgumentType]
    )


def test_many_runs_show_how_far_they_have_come(store: Store, now: datetime) -> None:
    first, second = begun(store, now), begun(store, now)

    written = store.run(run_log.write, [note(first, 0.5, "half", now=now), note(second, now=now)])

    half, silent = record(store, first), record(store, second)
    assert written == {first, second}
    assert (half.current_junction, half.junction_started_at) == ("load", now)
    assert (half.progress, half.progress_message) == (0.5, "half")
    assert (silent.progress, silent.progress_message) == (None, None)


def test_a_note_without_a_fraction_keeps_the_progress_and_one_with_it_replaces_both(
    store: Store, now: datetime
) -> None:
    run = begun(store, now)
    store.run(run_log.write, [note(run, 0.5, "half", now=now)])

    store.run(run_log.write, [note(run, now=now)])
    assert (record(store, run).progress, record(store, run).progress_message) == (0.5, "half")

    store.run(run_log.write, [note(run, 0.6, None, now=now)])
    assert (record(store, run).progress, record(store, run).progress_message) == (0.6, None)


def test_a_run_that_is_over_shows_nothing_new(store: Store, now: datetime) -> None:
    run = begun(store, now)
    ending = run_result(run)
    store.run(metadata.finish, [ending], now=now)

    assert store.run(run_log.write, [note(run, 0.5, "half", now=now)]) == set()

    assert (record(store, run).current_junction, record(store, run).progress) == (None, None)


def test_a_run_whose_row_is_locked_by_another_is_skipped(postgres_url: str, now: datetime) -> None:
    store = Store(postgres_url)
    held, free = begun(store, now), begun(store, now)

    def write_meanwhile(connection: object) -> set[int]:
        request_cancel(connection, [held])  # pyright: ignore[reportArgumentType]
        return store.run(run_log.write, [note(held, now=now), note(free, now=now)])

    assert store.run(write_meanwhile) == {free}
    store.close()


def test_runs_with_a_requested_cancellation_are_found(store: Store, now: datetime) -> None:
    stopping, going_on = begun(store, now), begun(store, now)
    store.run(request_cancel, [stopping])

    asked = store.read(run_log.find_cancel_requests, [stopping, going_on])

    assert asked == {stopping: CancelReason.REQUESTED}
