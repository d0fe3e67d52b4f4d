"""The report of the demo agrees with its records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trax import Metadata, WorkQueueEntry
from trax.cli.demo.report import Records, TrainReport, by_train, count_scheduled, most_at_once
from trax.records.states import Origin, QueueStatus, State

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def run(number: int, *, begun: float | None = 0, ended: float | None = None, **how: Any) -> Metadata:
    known: dict[str, Any] = {"train": "greet", "state": State.COMPLETED, "external_id": f"e{number}", **how}
    return Metadata(
        id=number,
        created_at=NOON,
        started_at=None if begun is None else at(begun),
        ended_at=None if ended is None else at(ended),
        **known,
    )


def entry(number: int, asked: float, manifest: str | None = None) -> WorkQueueEntry:
    return WorkQueueEntry(
        id=number,
        external_id=f"e{number}",
        train="greet",
        status=QueueStatus.DISPATCHED,
        origin=Origin.QUEUE,
        created_at=at(asked),
        manifest=manifest,
    )


def records(runs: list[Metadata], entries: list[WorkQueueEntry]) -> Records:
    return Records(since=NOON, until=at(60), runs=runs, entries=entries, waiting=0, letters=[])


@pytest.mark.parametrize(
    ("times", "most"),
    [
        ([], 0),
        ([(None, 1)], 0),
        ([(0, 2), (1, 3), (1.5, None)], 3),
        ([(0, 1), (1, 2), (2, 3)], 1),
    ],
)
def test_how_many_ran_at_once(times: list[tuple[float | None, float | None]], most: int) -> None:
    runs = [run(number, begun=begun, ended=ended) for number, (begun, ended) in enumerate(times)]

    assert most_at_once(runs) == most


def test_the_runs_of_a_train_are_added_up() -> None:
    runs = [
        run(4, begun=8, ended=8.5),
        run(3, begun=5, ended=5.5, state=State.CANCELLED),
        run(2, begun=4, ended=5, external_id="e1", attempt=2),
        run(1, begun=1, ended=2, state=State.FAILED),
    ]

    (found,) = by_train(records(runs, [entry(1, asked=0.5), entry(3, asked=2), entry(4, asked=3)]))

    assert found == TrainReport(
        train="greet", runs=4, succeeded=2, failed=1, put_back=1, retried=1, waited=3, took=0.75
    )


def test_a_released_run_waited_until_its_first_start() -> None:
    runs = [run(1, begun=2, ended=3, state=State.CANCELLED), run(2, begun=9, ended=10, external_id="e1")]

    (found,) = by_train(records(runs, [entry(1, asked=1)]))

    assert found.waited == 1


def test_a_job_queued_before_this_visit_has_no_wait() -> None:
    (found,) = by_train(records([run(1)], []))

    assert (found.waited, found.took) == (None, None)


def test_entries_inside_a_window_are_counted_for_one_manifest() -> None:
    entries = [entry(1, 1, "a"), entry(2, 2, "a"), entry(3, 3, "a"), entry(4, 2, "b")]

    assert count_scheduled(records([], entries), "a", at(2), at(3)) == 1
