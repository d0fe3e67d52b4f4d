"""Commits of others during a visit to the gate, before each of its statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.support.gate_driver import GateDriver
from tests.support.results import run_result

from trax.engine.job_dispatcher import MAX_ENTRIES_PER_CYCLE, DispatchResult, run_dispatch_cycle
from trax.engine.routing import Routing
from trax.settings import Settings
from trax.store import Store
from trax.store import gate as stored_gate
from trax.store.runs import metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Connection

STATEMENTS = range(8)
"""The lock, and what is read and written under it."""


@pytest.fixture
def gate(postgres_url: str) -> Generator[GateDriver]:
    store = Store(postgres_url)
    store.open()
    yield GateDriver(store, store.read(store.now))
    store.close()


def visit_while(gate: GateDriver, place: int, happens: Callable[[], object]) -> DispatchResult:
    """One visit with a limit of one; something happens right before the statement at this place."""
    statements = 0

    def hear(connection: Connection, *_: Any) -> None:
        nonlocal statements
        if statements == place:
            driver: Any = connection.connection.driver_connection
            with driver.pipeline():
                pass  # what was sent before has been answered when this ends
            happens()
        statements += 1

    def visit(connection: Connection) -> DispatchResult:
        event.listen(connection, "before_cursor_execute", hear)
        return run_dispatch_cycle(connection, gate.store, Settings(max_active_jobs=1), Routing())

    visited = gate.store.run(visit)
    assert statements > place
    return visited


@pytest.mark.parametrize("place", STATEMENTS)
def test_an_entry_that_is_written_meanwhile_does_not_pass_a_full_gate(gate: GateDriver, place: int) -> None:
    gate.pending(1)

    visited = visit_while(gate, place, lambda: gate.queue(1))

    assert visited.metadata_ids == []


@pytest.mark.parametrize("place", STATEMENTS)
def test_a_run_that_ends_during_a_visit_has_ended_before_the_next_is_admitted(
    gate: GateDriver, place: int
) -> None:
    (running,) = gate.pending(1, state="in_progress", started_at=gate.now, worker_id=7)
    gate.queue(1)

    def end() -> None:
        ending = run_result(running, worker_id=7)
        gate.store.run(metadata.finish_and_commit, [ending], now=None)

    visited = visit_while(gate, place, end)

    earlier, *later = gate.runs()
    assert len(later) == len(visited.metadata_ids)
    assert earlier.ended_at
    assert all(earlier.ended_at <= run.created_at for run in later)


def test_an_entry_that_is_read_after_the_clock_is_not_dispatched_before_it_was_created(
    gate: GateDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.group("flood", max_active_jobs=0, priority=31)
    gate.queue(MAX_ENTRIES_PER_CYCLE + 1, group="flood")
    gate.queue(1)
    load_group_heads = stored_gate.load_group_heads

    def load_slowly(connection: Connection, **options: Any) -> Any:
        gate.now = gate.store.read(gate.store.now)
        gate.queue(1)
        return load_group_heads(connection, **options)

    monkeypatch.setattr(stored_gate, "load_group_heads", load_slowly)

    gate.visit(0, routing=Routing(default="elsewhere"))

    assert [run.created_at for run in gate.runs()] == [gate.now, gate.now]
