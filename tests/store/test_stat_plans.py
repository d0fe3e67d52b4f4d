"""Statistics of the dashboard stay fast with a long history: they read sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.plans import rows_read

from trax.records import QueueStatus, State
from trax.records.nouns import EntryFilter, LogFilter, ManifestFilter, RunFilter
from trax.store import Store, dead_letters, groups, listing, stats, workers
from trax.store.listing import SPARSE_WINDOW, WINDOW
from trax.store.manifests import manifest_rows
from trax.store.queue import queue_lists
from trax.store.runs import run_lists, run_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Connection

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
RUNS = 60_000
HISTORY = (
    "INSERT INTO trax.manifest_group (name, created_at, updated_at) VALUES ('g', :now, :now)",
    """INSERT INTO trax.manifest (external_id, train, group_id, origin, schedule_type, misfire_policy,
         max_retries, created_at, updated_at)
       SELECT 'm' || n, 'greet', 1, 'runtime', 'on_demand', 'fire_once_now', 3, :now, :now
       FROM generate_series(1, 500) n""",
    # Seven days of runs, one in fifty failed, and one train that hardly ever runs.
    """INSERT INTO trax.metadata (external_id, train, state, manifest_id, created_at, started_at, ended_at)
       SELECT n, CASE WHEN n % 10007 = 0 THEN 'rare' ELSE 'greet' || n % 20 END,
         CASE WHEN n % 50 = 7 THEN 'failed' ELSE 'completed' END, n % 500 + 1, at, at, at
       FROM (SELECT n, :now - (60000 - n) * interval '10 seconds' AS at
             FROM generate_series(1, 60000) n) made""",
    """INSERT INTO trax.metadata (external_id, train, state, created_at, started_at, worker_id)
       SELECT n, 'greet1', 'in_progress', :now, :now, 1 FROM generate_series(1, 20) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, created_at)
       SELECT n, 'greet', 'queued', 'queue', true, :now FROM generate_series(1, 60000) n""",
    """INSERT INTO trax.worker (host, host_environment, host_instance_id, pid, concurrency, trains,
         started_at, heartbeat_at) VALUES ('box', 'server', 'box', 1, 20, '[]', :now, :now)""",
    """INSERT INTO trax.log (metadata_id, created_at, level, logger, message)
       SELECT n, :now, 'information', 'jobs', 'line' || n FROM generate_series(1, 30000) n""",
    "ANALYZE",
)


@pytest.fixture(scope="module")
def history(postgres_databases: Any) -> Generator[Store]:
    with postgres_databases.database() as address:
        store = Store(address)
        store.run(lambda connection: [connection.execute(text(one), {"now": NOW}) for one in HISTORY])
        while step := store.read(stats.next_step, now=NOW):
            assert store.run(stats.add, step)
        store.run(lambda connection: connection.execute(text("ANALYZE")))
        yield store
        store.close()


def a_week(connection: Connection) -> None:
    endings = stats.read_totals(connection, now=NOW, admin=False)
    by_train = endings.by_train(NOW - timedelta(days=7))
    assert sum(one.total for one in by_train.values()) > RUNS - 100
    endings.by_hour_of(["greet1"], NOW - timedelta(days=7))
    groups.load_stats(connection, groups.load_list(connection), endings.latest)


def test_a_week_of_history_is_read_from_its_sums(history: Store) -> None:
    assert rows_read(history, a_week) <= 500


def test_percentiles_read_the_latest_runs(history: Store) -> None:
    week = NOW - timedelta(days=7)
    question = partial(stats.latest_durations, trains=["greet1", "greet2"], since=week)

    assert rows_read(history, question) <= 3 * stats.SAMPLE_SIZE


@pytest.mark.parametrize(
    "question",
    [listing.count_running, listing.count_pending, listing.count_dead_letters, dead_letters.load_groups],
)
def test_active_work_is_counted_without_scanning_history(
    history: Store, question: Callable[[Connection], Any]
) -> None:
    assert rows_read(history, question) <= 200


def test_a_long_queue_is_not_counted_to_its_end(history: Store) -> None:
    assert rows_read(history, listing.count_queued) <= 10_100


def test_workers_are_shown_without_walking_history(history: Store) -> None:
    def question(connection: Connection) -> None:
        workers.load_views(connection, now=NOW, lost_after=timedelta(seconds=20), jobs=10)

    assert rows_read(history, question) <= 200


@pytest.mark.parametrize(
    ("wanted", "at_most"),
    [
        (RunFilter(), 300),
        (RunFilter(admin=True), 300),
        (RunFilter(state=State.FAILED), 300),
        (RunFilter(state=State.IN_PROGRESS), 300),
        (RunFilter(state=State.CANCELLED), 300),
        (RunFilter(manifest="m7"), 600),
        (RunFilter(train="rare"), 600),
        (RunFilter(train="nobody"), 300),
        (RunFilter(until=NOW - timedelta(days=5)), 600),
        (RunFilter(external_id="000000"), 2 * WINDOW + 300),
        (RunFilter(group="nobody"), 2 * WINDOW + 300),
        (RunFilter(group="nobody", state=State.FAILED), 2 * SPARSE_WINDOW + 300),
    ],
)
def test_a_page_of_runs_reads_a_bounded_number_of_rows(
    history: Store, wanted: RunFilter, at_most: int
) -> None:
    def question(connection: Connection) -> None:
        run_lists.page(connection, wanted, before=None, after=None, limit=50)

    assert rows_read(history, question) <= at_most


@pytest.mark.parametrize("status", [None, *QueueStatus])
def test_a_page_of_entries_reads_a_bounded_number_of_rows(history: Store, status: QueueStatus | None) -> None:
    def question(connection: Connection) -> None:
        queue_lists.page(connection, EntryFilter(status=status), before=None, after=None, limit=50)

    assert rows_read(history, question) <= 2 * WINDOW + 300


def test_a_search_of_the_logs_reads_a_bounded_number_of_lines(history: Store) -> None:
    def question(connection: Connection) -> None:
        run_log.page(connection, LogFilter(text="nowhere"), before=None, after=None, limit=50)

    assert rows_read(history, question, of={"log"}) <= 2 * WINDOW + 100


def test_manifests_are_paged_along_their_names(history: Store) -> None:
    def question(connection: Connection) -> None:
        manifest_rows.page(connection, ManifestFilter(), before=None, after="m2", limit=20)

    assert rows_read(history, question, of={"manifest"}) <= 200
