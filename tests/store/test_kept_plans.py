"""PostgreSQL keeps plans between statements, where that is safe, and a plan made early stays a good one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from tests.support.results import run_result

from trax.engine.enqueue import EnqueueRequest, PlainEnqueue
from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.events import Topic
from trax.records.work_queue_entry import new_external_id
from trax.settings import Settings
from trax.store import Store
from trax.store.dialect import allow_broad_plans
from trax.store.engine import Timeouts, WaitLimits
from trax.store.postgresql import PREPARE_AFTER, prepare_session
from trax.store.runs import metadata
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Generator

    from sqlalchemy import Connection

OFTEN = 3 * PREPARE_AFTER
HISTORY = 20_000


@pytest.fixture
def one_connection(postgres_url: str) -> Generator[Store]:
    """A store whose transactions all come over the same connection, one after the other."""
    store = Store(postgres_url, pool_size=1)
    yield store
    store.close()


def go_through(store: Store) -> int:
    """One job on its whole way: queued, let in with the worker at hand, finished; a transaction each."""
    wish = EnqueueRequest(train="work", inputs={new_external_id(): "1"})
    store.run_alone(PlainEnqueue(wish).statement(store.dialect_name), Topic.WORK_QUEUE)
    taker = ClaimRequest(7, "box", 100, frozenset({"work"}))
    let_in = store.run(
        run_dispatch_cycle, store, Settings(max_active_jobs=100), Routing(), claim_request=taker
    )
    endings = [run_result(run.metadata_id, worker_id=7) for run in let_in.claimed]
    return len(store.run(metadata.finish_and_commit, endings, now=None))


def read_in_sequence(store: Store) -> int:
    """How many rows were read so far by walking a table from its beginning to its end."""
    store.run(lambda connection: connection.execute(text("SELECT pg_stat_force_next_flush()")))
    query = "SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('work_queue', 'metadata')"
    return int(store.run(lambda connection: connection.execute(text(query)).scalar_one()))


def test_statements_that_come_often_are_prepared(one_connection: Store) -> None:
    for _ in range(OFTEN):
        go_through(one_connection)

    query = text("SELECT count(*) FROM pg_prepared_statements WHERE generic_plans > 0")
    assert one_connection.run(lambda connection: connection.execute(query).scalar_one()) > PREPARE_AFTER


def test_a_plan_made_for_empty_tables_is_right_for_full_ones(one_connection: Store) -> None:
    for _ in range(OFTEN):
        go_through(one_connection)
    one_connection.run(fill_with_history)

    before = read_in_sequence(one_connection)

    assert go_through(one_connection) == 1

    assert read_in_sequence(one_connection) == before


def fill_with_history(connection: Connection) -> None:
    connection.execute(
        text(
            """INSERT INTO trax.metadata
                 (external_id, train, state, created_at, started_at, ended_at, submitter)
               SELECT n, 'work', 'completed', now(), now(), now(), 'local' FROM generate_series(1, :many) n"""
        ),
        {"many": HISTORY},
    )
    connection.execute(
        text(
            """INSERT INTO trax.work_queue
                 (external_id, train, status, origin, ready, metadata_id, created_at, dispatched_at)
               SELECT 'h' || n, 'work', 'dispatched', 'queue', true, n, now(), now()
               FROM generate_series(1, :many) n"""
        ),
        {"many": HISTORY},
    )


def test_a_broad_read_may_allow_sequential_scans(one_connection: Store) -> None:
    def ways(connection: Connection) -> set[str]:
        allow_broad_plans(connection)
        shown = "SELECT current_setting('enable_seqscan') UNION SELECT current_setting('enable_hashjoin')"
        return set(connection.execute(text(shown)).scalars())

    assert one_connection.run(ways) == {"on"}
    narrow = one_connection.run(lambda c: c.execute(text("SHOW enable_seqscan")).scalar_one())
    assert narrow == "off", "it was said for that transaction only"


def test_the_address_can_forbid_it(postgres_url: str) -> None:
    store = Store(f"{postgres_url}?prepare_statements=off", pool_size=1)
    for _ in range(OFTEN):
        go_through(store)

    query = text("SELECT count(*) FROM pg_prepared_statements")
    assert store.run(lambda connection: connection.execute(query).scalar_one()) == 0
    store.close()


class Pooled:
    """A connection through a pooler: that greets, and a server answers."""

    def __init__(self, *, answers: int) -> None:
        self.info = SimpleNamespace(backend_pid=1)
        self.wait_limits = WaitLimits(Timeouts())
        self.autocommit = False
        self.prepare_threshold: int | None = None
        self.said: list[str] = []
        self._answers = answers

    def execute(self, statement: str) -> Any:
        self.said.append(statement)
        return SimpleNamespace(fetchall=lambda: [(self._answers,)])


@pytest.mark.parametrize(("answers", "threshold", "said"), [(1, PREPARE_AFTER, 2), (2, None, 1)])
def test_nothing_is_prepared_behind_a_pooler(answers: int, threshold: int | None, said: int) -> None:
    connection = Pooled(answers=answers)

    prepare_session(connection, None, limits_statements=True)

    assert connection.prepare_threshold == threshold
    assert len(connection.said) == said, "and the session is left as it was"
