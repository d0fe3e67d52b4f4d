"""Lists stay quick however long history grows: each walks an index and stops when the page is full."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.plans import rows_read

from trax.records import QueueStatus, State
from trax.records.nouns import EntryFilter, RunFilter
from trax.store import Store, groups, inspect, status
from trax.store.queue import queue_lists
from trax.store.runs import run_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Connection

HISTORY = (
    "INSERT INTO trax.manifest_group (name, created_at, updated_at) VALUES ('g', now(), now())",
    """INSERT INTO trax.manifest (external_id, train, group_id, origin, schedule_type, misfire_policy,
         max_retries, created_at, updated_at)
       SELECT 'm' || n, 'greet', 1, 'runtime', 'on_demand', 'fire_once_now', 3, now(), now()
       FROM generate_series(1, 500) n""",
    """INSERT INTO trax.metadata (external_id, train, state, manifest_id, group_id, created_at, started_at,
         ended_at)
       SELECT n, 'greet', CASE WHEN n < 20 THEN 'cancelled' WHEN n < 40 THEN 'failed' ELSE 'completed' END,
         n % 500 + 1, 1, now(), now(), now() FROM generate_series(1, 50000) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, manifest_id, metadata_id,
         created_at, dispatched_at)
       SELECT n, 'greet', CASE WHEN n < 20 THEN 'cancelled' WHEN n < 40 THEN 'queued' ELSE 'dispatched' END,
         'trigger', true, n % 500 + 1, n, now(), CASE WHEN n >= 40 THEN now() END
       FROM generate_series(1, 50000) n""",
    "ANALYZE trax.metadata",
    "ANALYZE trax.work_queue",
    "ANALYZE trax.manifest",
)


@pytest.fixture(scope="module")
def history(postgres_databases: Any) -> Generator[Store]:
    with postgres_databases.database() as address:
        store = Store(address)
        store.run(lambda connection: [connection.execute(text(one)) for one in HISTORY])
        yield store
        store.close()


@pytest.mark.parametrize("state", [None, *State])
def test_runs_of_any_state_are_found_without_walking_history(history: Store, state: State | None) -> None:
    assert rows_read(history, partial(run_lists.load_list, record_filter=RunFilter(state=state))) <= 200


def test_runs_of_a_manifest_are_found_without_walking_history(history: Store) -> None:
    assert rows_read(history, partial(run_lists.load_list, record_filter=RunFilter(manifest="m7"))) <= 200
    assert (
        rows_read(history, lambda connection: run_lists.load_list(connection, RunFilter(manifest="nobody")))
        <= 200
    )


def test_runs_of_a_frequent_train_and_group_are_found_without_walking_history(history: Store) -> None:
    wanted = RunFilter(train="greet", group="g")

    assert (
        rows_read(history, partial(run_lists.load_list, record_filter=wanted))
        <= run_lists.RARE_TRAIN_RUNS + 200
    )


@pytest.mark.parametrize("status", [None, *QueueStatus])
def test_entries_of_any_status_are_found_without_walking_history(
    history: Store, status: QueueStatus | None
) -> None:
    assert (
        rows_read(history, lambda connection: queue_lists.load_list(connection, EntryFilter(status=status)))
        <= 200
    )


def test_entries_of_a_manifest_are_found_without_walking_history(history: Store) -> None:
    assert (
        rows_read(history, lambda connection: queue_lists.load_list(connection, EntryFilter(manifest="m7")))
        <= 200
    )
    assert (
        rows_read(
            history, lambda connection: queue_lists.load_list(connection, EntryFilter(manifest="nobody"))
        )
        <= 200
    )


def test_runs_of_a_rare_train_are_found_by_its_own_index(history: Store) -> None:
    wanted = RunFilter(train="nobody")

    assert rows_read(history, partial(run_lists.load_list, record_filter=wanted)) <= 200


def test_a_page_of_groups_is_found_without_reading_their_manifests(history: Store) -> None:
    tables = {"manifest", "work_queue", "manifest_group"}

    assert rows_read(history, groups.load_list, of=tables) <= 10


def test_how_the_whole_stands_is_found_without_walking_history(history: Store) -> None:
    def question(connection: Connection) -> None:
        status.load_status(connection, now=datetime.now(UTC), lost_after=timedelta(seconds=20))

    assert rows_read(history, question) <= 200


@pytest.mark.parametrize(
    "question",
    [
        inspect.find_active_runs,
        partial(inspect.find_active_runs, group_id=1),
        inspect.count_active_runs,
        partial(inspect.load_activity, manifest_id=7),
        partial(inspect.count_used_slots, worker_ids=[1], most=10),
    ],
)
def test_runs_and_entries_of_a_job_are_found_without_scanning_history(
    history: Store, question: Callable[[Connection], Any]
) -> None:
    assert rows_read(history, question) <= 200
