"""The statements of the gate, the workers and the sweeps cost what they move, not what lies around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text
from tests.support.results import run_result

from trax.engine.job_dispatcher import run_dispatch_cycle
from trax.engine.routing import Routing
from trax.records.states import State
from trax.settings import Settings
from trax.store import Store
from trax.store.dialect import take_gate_lock
from trax.store.manifests import manifest_due
from trax.store.pipeline import run_together
from trax.store.queue import work_queue
from trax.store.runs import claim, metadata, rescue, run_lists
from trax.store.runs.claim import ClaimRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Connection
    from tests.support.databases import PostgresDatabases

WORKER = 7
CROWDED = (
    """INSERT INTO trax.manifest_group (name, priority, max_active_jobs, created_at, updated_at)
       SELECT 'g' || n, CASE WHEN n = 1 THEN 31 ELSE 0 END, CASE WHEN n < 20 THEN 2 END, now(), now()
       FROM generate_series(1, 30) n""",
    """INSERT INTO trax.worker (host, host_environment, host_instance_id, pid, concurrency, trains,
         started_at, heartbeat_at)
       SELECT 'box', 'server', 'box', n, 10, '[]', now(), now() FROM generate_series(1, 8) n""",
    # A long history, five hundred runs under way, and some that wait for a worker.
    """INSERT INTO trax.metadata (external_id, train, state, group_id, created_at, started_at, ended_at,
         submitter, worker_id)
       SELECT n, 'work', 'completed', n % 30 + 1, now(), now(), now(), 'local', 7
       FROM generate_series(1, 60000) n""",
    """INSERT INTO trax.metadata (external_id, train, state, group_id, created_at, started_at, submitter,
         worker_id)
       SELECT n, 'work', 'in_progress', CASE WHEN n <= 2 THEN 1 END, now(), now(), 'local', 7
       FROM generate_series(1, 500) n""",
    """INSERT INTO trax.metadata (external_id, train, state, created_at, submitter)
       SELECT n, 'work', 'pending', now(), 'local' FROM generate_series(1, 300) n""",
    # A full group has flooded the queue, the others wait behind it, and many more for their moment.
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, metadata_id, created_at,
         dispatched_at)
       SELECT 'h' || n, 'work', 'dispatched', 'queue', true, n, now(), now()
       FROM generate_series(1, 60000) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, group_id, group_priority,
         created_at)
       SELECT 'f' || n, 'work', 'queued', 'queue', true, 1, 31, now() FROM generate_series(1, 40000) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, group_id, created_at)
       SELECT 'q' || n, 'work', 'queued', 'queue', true, n % 29 + 2, now() FROM generate_series(1, 600) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, created_at)
       SELECT 'n' || n, 'work', 'queued', 'queue', true, now() FROM generate_series(1, 5000) n""",
    """INSERT INTO trax.work_queue (external_id, train, status, origin, ready, created_at, scheduled_at)
       SELECT 'd' || n, 'work', 'queued', 'queue', false, now(), now() + n * interval '1 minute'
       FROM generate_series(1, 20000) n""",
    "ANALYZE trax.manifest_group, trax.worker, trax.metadata, trax.work_queue",
)

Node = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A statement as it went to the database."""

    statement: str
    given: Any


@pytest.fixture(scope="module", params=["", "?prepare_statements=off"], ids=["directly", "through a pooler"])
def store(postgres_databases: PostgresDatabases, request: pytest.FixtureRequest) -> Generator[Store]:
    with postgres_databases.database() as address:
        store = Store(address + request.param)
        store.run(lambda connection: [connection.execute(text(one)) for one in CROWDED])
        yield store
        store.close()


@pytest.fixture(scope="module")
def visited(store: Store) -> list[Sent]:
    """What one visit to the gate sends, by PostgreSQL's own clock."""
    taker = ClaimRequest(WORKER, "box", 400, frozenset({"work"}))
    settings = Settings(max_active_jobs=10_000)

    def visit(connection: Connection) -> None:
        let_in = run_dispatch_cycle(connection, store, settings, Routing(), claim_request=taker)
        assert len(let_in.claimed) > 300, "some were pending, and some were let in"
        assert let_in.has_waiting_entries

    return sent_by(store, visit)


def sent_by(store: Store, act: Callable[[Connection], object]) -> list[Sent]:
    sent: list[Sent] = []

    def note(_connection: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        sent.append(Sent(statement, given))

    def noted(connection: Connection) -> None:
        event.listen(connection, "before_cursor_execute", note)
        act(connection)

    store.run(noted)
    return sent


def the_one(sent: list[Sent], *words: str) -> Sent:
    (found,) = [one for one in sent if all(word in one.statement for word in words)]
    return found


def plan_of(store: Store, sent: Sent, *, at_the_gate: bool = True, is_run: bool = False) -> list[Node]:
    """The nodes of its plan; at the gate with the switches that the lock brings along."""

    def explained(connection: Connection) -> Node:
        if at_the_gate:
            take_gate_lock(connection)
        how = "ANALYZE, FORMAT JSON" if is_run else "FORMAT JSON"
        plan = connection.exec_driver_sql(f"EXPLAIN ({how}) {sent.statement}", sent.given)
        return plan.scalar_one()[0]["Plan"]

    return list(nodes(store.run(explained)))


def nodes(node: Node) -> Generator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def ways_into(plan: list[Node], table: str) -> set[tuple[str, str | None]]:
    """How the rows of a table are found: by which kind of scan, of which index."""
    scans = [node for node in plan if node.get("Relation Name") == table and "Scan" in node["Node Type"]]
    return {(node["Node Type"], node.get("Index Name")) for node in scans}


def rows_read(plan: list[Node], table: str) -> int:
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in plan
        if node.get("Relation Name") == table
    )


def kinds(plan: list[Node]) -> set[str]:
    return {node["Node Type"] for node in plan}


def test_delayed_entries_are_promoted_by_their_index(store: Store, visited: list[Sent]) -> None:
    promote = the_one(visited, "UPDATE trax.work_queue SET", "ready=")

    assert promote.given["now"] is None
    assert ways_into(plan_of(store, promote), "work_queue") == {("Index Scan", "work_queue_delayed_idx")}


def test_the_head_of_the_queue_is_walked_in_order_and_no_further(store: Store, visited: list[Sent]) -> None:
    first = the_one(visited, "ORDER BY trax.work_queue.group_priority DESC")

    plan = plan_of(store, first, is_run=True)

    assert ways_into(plan, "work_queue") == {("Index Scan", "work_queue_ready_idx")}
    assert kinds(plan) == {"Limit", "Index Scan"}
    assert rows_read(plan, "work_queue") == first.given["most"] < 600


def test_the_heads_of_groups_are_found_without_wading_through_a_flood(
    store: Store, visited: list[Sent]
) -> None:
    heads = the_one(visited, "WITH RECURSIVE")

    plan = plan_of(store, heads, is_run=True)

    assert {index for _, index in ways_into(plan, "work_queue")} == {"work_queue_ready_in_group_idx"}
    assert rows_read(plan, "work_queue") < 2_000


def test_active_runs_are_counted_with_a_partial_index(store: Store, visited: list[Sent]) -> None:
    count = the_one(visited, "GROUP BY active.group_id")

    ways = ways_into(plan_of(store, count), "metadata")

    assert {kind for kind, _ in ways} <= {"Index Scan", "Index Only Scan"}
    assert {index for _, index in ways} == {"metadata_claim_idx", "metadata_running_idx"}


def test_entries_not_yet_ready_are_counted_with_an_index(store: Store, visited: list[Sent]) -> None:
    elsewhere = the_one(visited, "min(trax.work_queue.scheduled_at)")

    plan = plan_of(store, elsewhere)

    looked_at = {index for _, index in ways_into(plan, "work_queue")}
    assert looked_at <= {"work_queue_delayed_idx", "work_queue_parked_idx", "work_queue_parked_at_idx"}
    assert "work_queue_delayed_idx" in looked_at
    assert {index for _, index in ways_into(plan, "metadata")} == {"metadata_claim_idx"}


@pytest.mark.parametrize(("at_the_gate", "slots"), [(True, 400), (False, 20)])
def test_pending_runs_are_claimed_with_their_index(
    store: Store, visited: list[Sent], *, at_the_gate: bool, slots: int
) -> None:
    taking = the_one(visited, "UPDATE trax.metadata SET", "FOR UPDATE SKIP LOCKED")
    taking = replace(taking, given={**taking.given, "slots": slots})

    plan = plan_of(store, taking, at_the_gate=at_the_gate)

    assert {index for _, index in ways_into(plan, "metadata")} == {"metadata_claim_idx", "metadata_pkey"}


def test_entries_are_marked_one_by_one_and_not_by_reading_the_queue(
    store: Store, visited: list[Sent]
) -> None:
    make = the_one(visited, "INSERT INTO trax.metadata")

    assert ways_into(plan_of(store, make), "work_queue") == {("Index Scan", "work_queue_pkey")}


@pytest.mark.parametrize(
    ("outputs", "source"),
    [("alike", "Function Scan"), ("of each", "Function Scan"), ("failed", "Function Scan")],
)
def test_runs_are_ended_one_by_one_and_not_by_walking_the_batch_for_each(
    store: Store, outputs: str, source: str
) -> None:
    ids = range(60_001, 60_501)
    endings = [run_result(one, worker_id=WORKER) for one in ids]
    if outputs == "of each":
        endings = [ending._replace(output=str(ending.metadata_id)) for ending in endings]
    if outputs == "failed":
        endings[0] = run_result(ids[0], State.FAILED, worker_id=WORKER)
    (finish, *_) = sent_by(store, lambda connection: metadata.finish(connection, endings, now=now(store)))

    plan = plan_of(store, finish, at_the_gate=False)

    assert ways_into(plan, "metadata") == {("Index Scan", "metadata_pkey")}
    (document,) = [node for node in plan if node["Node Type"] == source]
    assert document["Parent Relationship"] == "Outer"


def test_the_times_of_runs_are_found_one_by_one(store: Store) -> None:
    (look,) = sent_by(store, lambda connection: run_lists.load_run_times(connection, range(1, 501)))

    plan = plan_of(store, look, at_the_gate=False)

    assert {index for _, index in ways_into(plan, "metadata")} == {"metadata_pkey"}
    assert {index for _, index in ways_into(plan, "work_queue")} == {"work_queue_pkey"}


def test_whether_anybody_waits_is_known_from_the_first_who_does(store: Store) -> None:
    (look,) = sent_by(store, work_queue.is_any_ready)

    plan = plan_of(store, look, at_the_gate=False, is_run=True)

    assert ways_into(plan, "work_queue") <= {
        ("Index Scan", "work_queue_ready_idx"),
        ("Index Only Scan", "work_queue_ready_idx"),
    }
    assert rows_read(plan, "work_queue") == 1


def test_whether_anything_is_pending_is_known_from_its_index(store: Store) -> None:
    (look,) = sent_by(store, claim.has_pending)

    plan = plan_of(store, look, at_the_gate=False)

    assert {index for _, index in ways_into(plan, "metadata")} == {"metadata_claim_idx"}


def test_the_maintenance_check_reads_only_active_runs(store: Store) -> None:
    parameters = manifest_due.maintenance_parameters("postgresql", Settings(), None)
    step = rescue.select_maintenance_needs("postgresql"), parameters
    (look,) = sent_by(store, lambda connection: run_together(connection, step))

    plan = plan_of(store, look, at_the_gate=False, is_run=True)

    of_what_goes_on = {"metadata_running_idx", "metadata_claim_idx", "metadata_outbox_idx"}
    assert "Seq Scan" not in {kind for kind, _ in ways_into(plan, "metadata")}
    assert {node["Index Name"] for node in plan if node.get("Index Name", "").startswith("metadata")} <= (
        of_what_goes_on
    )
    assert rows_read(plan, "metadata") <= 3 * 1_300


def now(store: Store) -> datetime:
    return store.read(store.now).astimezone(UTC)
