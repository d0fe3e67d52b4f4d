from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support.statuses import NOTHING_WRONG

from trax.records.listing import COUNT_LIMIT
from trax.records.status import problems
from trax.records.worker import WorkerRecord

NOW = NOTHING_WRONG.now
LONG_AGO = NOW - timedelta(minutes=2)
WORKER = WorkerRecord(id=1, host="box", pid=1, concurrency=4, trains=(), started_at=NOW, heartbeat_at=NOW)
QUIET = NOTHING_WRONG


def test_nothing_is_wrong_where_nothing_waits() -> None:
    assert problems(QUIET) == []


def test_a_moment_that_has_just_come_is_no_problem() -> None:
    just_now = NOW - timedelta(seconds=30)

    assert problems(replace(QUIET, next_due_at=just_now, next_delayed_at=just_now)) == []


def test_due_times_that_passed_long_ago_show_that_no_scheduler_runs() -> None:
    said = problems(replace(QUIET, next_due_at=LONG_AGO, next_delayed_at=LONG_AGO, workers=(WORKER,)))

    assert said == [
        "no scheduler checks manifests: one is due since 11:58:00 UTC",
        "no scheduler reads the queue: an entry is due since 11:58:00 UTC",
    ]


def test_runs_for_workers_need_one() -> None:
    waiting = replace(QUIET, pending=COUNT_LIMIT, pending_local=COUNT_LIMIT)

    assert problems(waiting) == ["no worker is alive, and 10000+ are pending for one"]
    assert problems(replace(waiting, workers=(WORKER,))) == []


def test_entries_that_are_executed_elsewhere_need_no_worker() -> None:
    stuck = replace(QUIET, ready=3, ready_since=LONG_AGO)

    assert problems(stuck) == ["no worker is alive, and 3 are ready in the queue"]
    assert problems(replace(stuck, running=1)) == []
    assert problems(replace(stuck, ready_since=NOW)) == []


def test_servers_of_one_app_that_declare_different_manifests_are_named() -> None:
    one = replace(WORKER, declares="one set")
    other = replace(WORKER, id=2, host="van", pid=7, declares="another set")
    elsewhere, declaring_none = replace(other, app="mail"), replace(other, declares=None)

    (said,) = problems(replace(QUIET, servers=(one, other)))

    assert said.startswith(
        "servers of app 'default' declare different manifests or groups: box (process 1), van (process 7)"
    )
    assert problems(replace(QUIET, servers=(one, one, elsewhere, declaring_none))) == []
